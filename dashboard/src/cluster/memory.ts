/* A device's memory as a bar: what each model has, what else is used, what is free. Pure. */
import { bytes } from '../lib/format.ts';
import type { Device } from '../lib/types.ts';

export interface Segment {
  model: string | null; /* null: other programs, and Medley itself */
  bytes: number;
  share: number;
}

export function segmentsOf(
  device: Device,
  stages: { model: string; bytes: number | null | undefined }[],
): Segment[] {
  const all = device.memory_bytes;
  if (!all) return [];
  const free = device.free_bytes;
  const out: Segment[] = [];
  let left = all;
  const add = (model: string | null, wanted: number) => {
    const taken = Math.min(Math.max(wanted, 0), left);
    if (taken <= 0) return;
    left -= taken;
    out.push({ model, bytes: taken, share: taken / all });
  };
  for (const stage of stages) add(stage.model, stage.bytes ?? 0);
  if (free !== null && free !== undefined) add(null, left - free);
  return out;
}

export function segmentsText(device: Device, segments: Segment[]): string {
  if (!device.memory_bytes) return 'memory unknown';
  const used = segments.reduce((sum, one) => sum + one.bytes, 0);
  const parts = segments
    .filter((one) => one.model)
    .map((one) => `${one.model} ${bytes(one.bytes)}`);
  const models = parts.length ? `; ${parts.join(', ')}` : '';
  return `${bytes(used)} of ${bytes(device.memory_bytes)} used${models}`;
}

/** How near a device is to its limit. */
export function heatOf(device: Device): 'unknown' | 'cool' | 'warm' | 'hot' {
  const { temperature_c: now, limit_c: limit } = device;
  if (now === null || now === undefined) return 'unknown';
  const top = limit ?? 90;
  return now >= top - 3 ? 'hot' : now >= top - 10 ? 'warm' : 'cool';
}
