/* Light or dark: as the system has it until somebody chooses; kept in this browser. */

export type Scheme = 'auto' | 'light' | 'dark';
const KEY = 'medley.scheme';
const ORDER: Scheme[] = ['auto', 'light', 'dark'];

function kept(): Scheme {
  try {
    const found = localStorage.getItem(KEY) as Scheme | null;
    return found && ORDER.includes(found) ? found : 'auto';
  } catch {
    return 'auto'; /* a browser that keeps nothing */
  }
}

export const scheme: { now: Scheme } = $state({ now: kept() });

export function schemeApply(): void {
  if (scheme.now === 'auto') delete document.documentElement.dataset.scheme;
  else document.documentElement.dataset.scheme = scheme.now;
}

export function schemeNext(): void {
  scheme.now = ORDER[(ORDER.indexOf(scheme.now) + 1) % ORDER.length] ?? 'auto';
  schemeApply();
  try {
    localStorage.setItem(KEY, scheme.now);
  } catch {
    /* it lasts as long as the page */
  }
}
