/* Which machine has which place in the drawing, kept in this browser. */
import { assignSlots } from './layout.ts';

const KEY = 'medley.slots';

function kept(): Record<string, number> {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? '{}');
    return typeof found === 'object' && found !== null ? (found as Record<string, number>) : {};
  } catch {
    return {};
  }
}

let known = kept();

/** `ids` in the order of their places. */
export function ordered(ids: string[]): string[] {
  const slots = assignSlots(known, ids);
  const changed = ids.some((id) => known[id] !== slots[id]);
  known = { ...slots };
  if (changed) {
    try {
      localStorage.setItem(KEY, JSON.stringify(known));
    } catch {
      /* places last as long as the page */
    }
  }
  return [...ids].sort((a, b) => (slots[a] ?? 0) - (slots[b] ?? 0));
}
