/* The last minute of a device, and the next: history from the node, then what comes live. Pure. */
import type { History, Maybe } from '../lib/types.ts';

export type Reading = 'temperature_c' | 'use_share' | 'power_w' | 'clock_mhz' | 'free_bytes';

export const SHOWN_S = 60;
export const AHEAD_S = 60;

export interface Point {
  time_ms: number;
  temperature_c: Maybe<number>;
  use_share: Maybe<number>;
  power_w: Maybe<number>;
  clock_mhz: Maybe<number>;
  free_bytes: Maybe<number>;
}

export function pointsOf(history: History): Point[] {
  const length = Math.max(0, ...READINGS.map((key) => history[key]?.length ?? 0));
  return Array.from({ length }, (_, i) => ({
    time_ms: history.end_ms - (length - 1 - i) * history.period_ms,
    temperature_c: history.temperature_c?.[i],
    use_share: history.use_share?.[i],
    power_w: history.power_w?.[i],
    clock_mhz: history.clock_mhz?.[i],
    free_bytes: history.free_bytes?.[i],
  }));
}

const READINGS: Reading[] = ['temperature_c', 'use_share', 'power_w', 'clock_mhz', 'free_bytes'];

/** Adds what is new, and drops what is older than a minute. */
export function addPoint(points: Point[], point: Point): Point[] {
  const last = points.at(-1);
  if (last && point.time_ms <= last.time_ms) return points;
  const since = point.time_ms - SHOWN_S * 1000;
  return [...points.filter((one) => one.time_ms >= since), point];
}

export interface Series {
  x: number[]; /* seconds; 0 is now */
  y: (number | null)[];
  ahead: (number | null)[];
}

/** `predicted`: one value a second from now on; the first joins the last that was measured. */
export function seriesOf(points: Point[], reading: Reading, predicted: Maybe<number>[] = []): Series {
  const end = points.at(-1)?.time_ms ?? 0;
  const out: Series = { x: [], y: [], ahead: [] };
  for (const point of points) {
    out.x.push((point.time_ms - end) / 1000);
    out.y.push(point[reading] ?? null);
    out.ahead.push(null);
  }
  if (predicted.length && out.y.length) out.ahead[out.ahead.length - 1] = out.y.at(-1) ?? null;
  predicted.slice(0, AHEAD_S).forEach((value, i) => {
    out.x.push(i + 1);
    out.y.push(null);
    out.ahead.push(value ?? null);
  });
  return out;
}

export function isKnown(points: Point[], reading: Reading): boolean {
  return points.some((point) => point[reading] !== null && point[reading] !== undefined);
}
