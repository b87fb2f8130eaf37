// Draws requests from an OpenAPI document: values that are valid under a JSON schema, and broken ones.
'use strict';

// mulberry32, by Tommy Ettinger (public domain): the same seed draws the same requests.
function makeDice(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const below = (n) => Math.floor(next() * n);
  return { next, below, chance: (p) => next() < p, pick: (list) => list[below(list.length)] };
}

const words = ['', 'x', 'fox', 'a lantern', 'Tell me a story.', 'é漢🦊', '\u0000', '"quoted"\\', '{}', '<tool_call>', '\n', 'weather', '-1', 'null'];
const anyValue = (dice, depth = 0) => {
  const simple = [null, true, false, 0, -1, 1.5, 1e300, '', 'text', []];
  if (depth > 2 || dice.chance(0.7)) return dice.pick(simple);
  return dice.chance(0.5) ? [anyValue(dice, depth + 1)] : { [dice.pick(words)]: anyValue(dice, depth + 1) };
};

// Drawer for a document. `hints` has values for members by their names: what a client would send, where a schema cannot tell.
class Drawer {
  constructor(document, dice, hints) {
    Object.assign(this, { document, dice, hints });
  }

  resolve(schema) {
    return schema.$ref ? this.resolve(schema.$ref.slice(2).split('/').reduce((at, name) => at[name], this.document)) : schema;
  }

  draw(unresolved, depth = 0) {
    const { dice } = this, schema = this.resolve(unresolved);
    if ('const' in schema) return schema.const;
    if (schema.enum) return dice.pick(schema.enum);
    const choices = schema.anyOf ?? schema.oneOf;
    if (choices) return this.draw(dice.pick(dice.chance(0.9) ? choices.filter((one) => one.type !== 'null') : choices), depth);
    const types = [schema.type ?? 'any'].flat();
    const type = types.length > 1 && dice.chance(0.1) ? 'null' : types[0];
    return this[`draw_${type}`](schema, depth);
  }

  draw_any(schema, depth) { return anyValue(this.dice, depth); }
  draw_null() { return null; }
  draw_boolean() { return this.dice.chance(0.5); }

  draw_string({ pattern, minLength = 0, maxLength = 100 }) {
    if (pattern) return this.dice.pick(['weather', 'read_file', 'a', 'x.y-z_0']);
    const text = this.dice.chance(0.02) ? 'long '.repeat(this.dice.below(400)) : this.dice.pick(words);
    return [...text].slice(0, maxLength).join('').padEnd(minLength, 'x');
  }

  draw_number({ minimum = -100, maximum = 100 }) {
    const { dice } = this;
    return dice.pick([minimum, maximum, minimum + dice.next() * Math.min(maximum - minimum, 2)]);
  }

  draw_integer({ minimum = -5, maximum = 1000 }) {
    const { dice } = this;
    return dice.pick([minimum, Math.min(maximum, minimum + 1), minimum + dice.below(Math.min(maximum - minimum, 20) + 1), maximum]);
  }

  draw_array({ items = {}, minItems = 0, maxItems = 4 }, depth) {
    const n = Math.min(maxItems, minItems + this.dice.below(depth > 6 ? 1 : 3));
    return Array.from({ length: n }, () => this.draw(items, depth + 1));
  }

  draw_object({ properties = {}, required = [], additionalProperties, patternProperties = {} }, depth) {
    const value = {}, { dice } = this;
    const wanted = Object.keys(properties).filter((name) => required.includes(name) || dice.chance(depth > 6 ? 0 : 2.5 / (Object.keys(properties).length + 2)));
    for (const name of wanted) value[name] = this.member(name, properties[name], depth);
    for (const schema of Object.values(patternProperties)) if (dice.chance(0.5)) value[String(dice.below(300))] = this.draw(schema, depth + 1);
    if (additionalProperties && typeof additionalProperties === 'object') value[dice.pick(words)] = this.draw(additionalProperties, depth + 1);
    return value;
  }

  member(name, schema, depth) {
    const hint = this.hints[name];
    return hint && this.dice.chance(0.9) ? this.dice.pick(hint) : this.draw(schema, depth + 1);
  }

  // A copy with something wrong: one member or element anywhere is taken out, exchanged, doubled or added.
  breakValue(value) {
    const { dice } = this, copy = structuredClone(value);
    const places = [];
    const visit = (at) => {
      if (at === null || typeof at !== 'object') return;
      for (const key of Object.keys(at)) {
        places.push([at, key]);
        visit(at[key]);
      }
    };
    visit(copy);
    if (!places.length || dice.chance(0.05)) return anyValue(dice);
    const [at, key] = dice.pick(places);
    const ways = [
      () => { if (Array.isArray(at)) at.splice(key, 1); else delete at[key]; },
      () => { at[key] = anyValue(dice); },
      () => { at[key] = [at[key], at[key]]; },
      () => { at[key] = typeof at[key] === 'number' ? at[key] * -1e9 : at[key] === null ? 0 : null; },
      () => { if (!Array.isArray(at)) at[dice.pick(['colour', 'model', 'stream', 'type', ''])] = anyValue(dice); },
    ];
    dice.pick(ways)();
    return copy;
  }

  // Bytes that are no JSON, or nearly.
  breakText(text) {
    const { dice } = this, at = dice.below(text.length + 1);
    return dice.pick([text.slice(0, at), text.slice(0, at) + dice.pick(['"', '}', ',', '\u0007', '{{{']) + text.slice(at), '', '[', 'nul', '{"a":1,"a":2}']);
  }
}

module.exports = { Drawer, makeDice };
