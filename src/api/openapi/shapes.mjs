// Short names for what a JSON schema is made of. What a request may leave out may also be null.
export const text = { type: 'string' };
export const flag = { type: 'boolean' };
export const count = { type: 'integer', minimum: 0 };
export const number = { type: 'number' };
export const anything = {};
export const anyObject = { type: 'object' };

export const between = (minimum, maximum) => ({ type: 'number', minimum, maximum });
export const integer = (minimum, maximum) => ({ type: 'integer', minimum, maximum });
export const list = (items, more) => ({ type: 'array', items, ...more });
export const map = (values) => ({ type: 'object', additionalProperties: values });
export const only = (...values) => (values.length === 1 ? { const: values[0] } : { enum: values });
export const either = (...schemas) => ({ anyOf: schemas });
export const ref = (name) => ({ $ref: `#/components/schemas/${name}` });

export function orNull(schema) {
  if (typeof schema.type === 'string') {
    const values = schema.enum ? { enum: [...schema.enum, null] } : {};
    return { ...schema, ...values, type: [schema.type, 'null'] };
  }
  if (schema.enum) return { enum: [...schema.enum, null] };
  if ('const' in schema) return { enum: [schema.const, null] };
  if (schema.anyOf) return { anyOf: [...schema.anyOf, { type: 'null' }] };
  return Object.keys(schema).length ? { anyOf: [schema, { type: 'null' }] } : schema;
}

// What a client sends: other members are refused; those that are not required may be null.
export function request(required, optional = {}, more = {}) {
  const properties = { ...required };
  for (const [name, schema] of Object.entries(optional)) properties[name] = orNull(schema);
  return { type: 'object', properties, ...names(required), additionalProperties: false, ...more };
}

// What the node sends: later versions may add members.
export function answer(required, optional = {}) {
  return { type: 'object', properties: { ...required, ...optional }, ...names(required) };
}

function names(required) {
  return Object.keys(required).length ? { required: Object.keys(required) } : {};
}
