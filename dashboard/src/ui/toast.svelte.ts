/* A short message at the lower edge that goes by itself; errors stay until they are closed. */

export interface Toast {
  id: number;
  kind: 'good' | 'bad';
  text: string;
}

const SHOWN_MS = 6000;
const TOASTS_MAX = 4;
let last = 0;

export const toasts: Toast[] = $state([]);

export function toast(text: string, kind: Toast['kind'] = 'good'): void {
  const id = ++last;
  toasts.push({ id, kind, text });
  if (toasts.length > TOASTS_MAX) toasts.shift();
  if (kind === 'good') window.setTimeout(() => dismiss(id), SHOWN_MS);
}

export function dismiss(id: number): void {
  const at = toasts.findIndex((entry) => entry.id === id);
  if (at >= 0) toasts.splice(at, 1);
}
