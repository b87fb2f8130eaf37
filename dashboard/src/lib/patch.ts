/* JSON Merge Patch (RFC 7396), in place: null removes, an object goes deeper, all else replaces.
 * In place, so that what watches a field hears of that field alone. */

type Json = Record<string, unknown>;

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function withoutNulls(value: unknown): unknown {
  if (!isObject(value)) return value;
  const out: Json = {};
  for (const [key, inner] of Object.entries(value)) {
    if (inner !== null) out[key] = withoutNulls(inner);
  }
  return out;
}

/** `__proto__` as a key would reach the prototype of every object. */
const FORBIDDEN = new Set(['__proto__', 'constructor', 'prototype']);

export function applyPatch(target: Json, patch: Json): void {
  for (const [key, value] of Object.entries(patch)) {
    if (FORBIDDEN.has(key)) continue;
    if (value === null) delete target[key];
    else if (!isObject(value)) target[key] = value;
    else if (isObject(target[key])) applyPatch(target[key] as Json, value);
    else target[key] = withoutNulls(value);
  }
}
