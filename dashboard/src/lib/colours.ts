/* A model has the same colour everywhere, and keeps it when others come and go. Pure. */

export const COLOURS = 8;

function hash(text: string): number {
  let value = 2166136261; /* FNV-1a */
  for (let i = 0; i < text.length; i++)
    value = Math.imul(value ^ text.charCodeAt(i), 16777619) >>> 0;
  return value;
}

/** Each name to a colour of tokens.css (--model-N); two share one only when all are taken. */
export function modelColours(names: string[]): Map<string, number> {
  const out = new Map<string, number>();
  const taken = new Set<number>();
  for (const name of [...names].sort()) {
    let colour = hash(name) % COLOURS;
    for (let i = 0; i < COLOURS && taken.size < COLOURS && taken.has(colour); i++)
      colour = (colour + 1) % COLOURS;
    taken.add(colour);
    out.set(name, colour);
  }
  return out;
}
