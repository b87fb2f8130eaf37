/* Numbers as people read them. What is not known is said with an en dash. */
import type { Maybe } from './types.ts';

export const UNKNOWN = '–';

function known(value: Maybe<number>): value is number {
  return value !== null && value !== undefined && Number.isFinite(value);
}

/** Three digits that mean something: 0.42, 4.2, 42, 420. */
export function short(value: number): string {
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString('en');
  return value.toFixed(size >= 9.95 ? 0 : size >= 0.995 ? 1 : 2);
}

function scaled(value: number, step: number, units: readonly string[]): string {
  let unit = 0;
  while (Math.abs(value) >= step * 0.9995 && unit < units.length - 1) {
    value /= step;
    unit += 1;
  }
  return `${value >= 10 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function bytes(value: Maybe<number>): string {
  return known(value) ? scaled(value, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB']) : UNKNOWN;
}

export function rate(value: Maybe<number>): string {
  return known(value) ? scaled(value, 1000, ['B/s', 'kB/s', 'MB/s', 'GB/s', 'TB/s']) : UNKNOWN;
}

export function percent(share: Maybe<number>): string {
  return known(share) ? `${Math.round(share * 100)} %` : UNKNOWN;
}

export function celsius(value: Maybe<number>): string {
  return known(value) ? `${Math.round(value)} °C` : UNKNOWN;
}

export function watts(value: Maybe<number>): string {
  return known(value) ? `${short(value)} W` : UNKNOWN;
}

export function tokensPerS(value: Maybe<number>): string {
  return known(value) ? `${short(value)} tokens/s` : UNKNOWN;
}

export function latency(ns: Maybe<number>): string {
  if (!known(ns)) return UNKNOWN;
  if (ns < 1e6) return `${Math.round(ns / 1e3)} µs`;
  return `${short(ns / 1e6)} ms`;
}

export function duration(ms: Maybe<number>): string {
  if (!known(ms)) return UNKNOWN;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 59.95) return `${short(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.round((s % 86400) / 3600)} h`;
}

/** "just now", "12 s ago", "3 min ago", then the time of day, then the date. */
export function ago(then_ms: Maybe<number>, now_ms: number): string {
  if (!known(then_ms) || then_ms <= 0) return UNKNOWN;
  const s = (now_ms - then_ms) / 1000;
  if (s < 3) return 'just now';
  if (s < 60) return `${Math.round(s)} s ago`;
  if (s < 3600) return `${Math.round(s / 60)} min ago`;
  return clock(then_ms, now_ms);
}

export function clock(then_ms: number, now_ms: number): string {
  const then = new Date(then_ms);
  const time = then.toLocaleTimeString('en-GB');
  return new Date(now_ms).toDateString() === then.toDateString()
    ? time
    : `${then.toLocaleDateString('en-GB', { day: 'numeric', month: 'short' })} ${time}`;
}

export function layers(first: number, n: number): string {
  return n === 1 ? `layer ${first}` : `layers ${first}–${first + n - 1}`;
}

export function count(n: number, one: string, many = one + 's'): string {
  return `${n.toLocaleString('en')} ${n === 1 ? one : many}`;
}

/** "a", "a and b", "a, b and c" */
export function listed(words: string[]): string {
  if (words.length < 2) return words[0] ?? '';
  return `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`;
}

/** With a full stop, where it has no end yet. */
export function sentence(text: string): string {
  return /[.!?…]$/.test(text) ? text : `${text}.`;
}

/** What stands between `backticks` is code. */
export function spans(text: string): { text: string; code: boolean }[] {
  return text
    .split('`')
    .map((part, i) => ({ text: part, code: i % 2 === 1 }))
    .filter((part) => part.text !== '');
}
