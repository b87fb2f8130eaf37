/* Links as the drawing shows them: both directions of a pair as one line. Pure. */
import { bytes, latency, percent, rate } from '../lib/format.ts';
import type { Instance, Link, View } from '../lib/types.ts';

export interface Pair {
  key: string;
  a: string;
  b: string;
  forth: Link | undefined; /* a to b */
  back: Link | undefined;
}

export const pairKey = (a: string, b: string) => (a < b ? `${a}>${b}` : `${b}>${a}`);

export function pairsOf(links: View['links']): Pair[] {
  const out = new Map<string, Pair>();
  for (const link of Object.values(links)) {
    const key = pairKey(link.from, link.to);
    const [a = '', b = ''] = link.from < link.to ? [link.from, link.to] : [link.to, link.from];
    const pair = out.get(key) ?? { key, a, b, forth: undefined, back: undefined };
    if (link.from === a) pair.forth = link;
    else pair.back = link;
    out.set(key, pair);
  }
  return [...out.values()];
}

/** Pairs over which activations go, with the model: stage to stage, and from the last to the first. */
export function pairsInUse(instances: Record<string, Instance>): Map<string, string> {
  const out = new Map<string, string>();
  for (const { stages, model } of Object.values(instances)) {
    if (!stages) continue;
    stages.forEach((stage, i) => {
      const next = stages[(i + 1) % stages.length];
      if (next && next.node !== stage.node) out.set(pairKey(stage.node, next.node), model);
    });
  }
  return out;
}

const worse = (a: number | null | undefined, b: number | null | undefined) =>
  a === null || a === undefined ? b : b === null || b === undefined ? a : Math.max(a, b);

export function pairLatency(pair: Pair): string {
  return latency(worse(pair.forth?.latency_ns, pair.back?.latency_ns));
}

export const isUp = (pair: Pair) => Boolean(pair.forth?.up || pair.back?.up);
export const classOf = (pair: Pair) => pair.forth?.class ?? pair.back?.class ?? 'unknown';

/** How a line is drawn: by its class alone, so that colour is free for models. */
export function styleOf(kind: string): 'fast' | 'wire' | 'air' | 'inner' | 'other' {
  if (kind === 'thunderbolt' || kind === 'rdma') return 'fast';
  if (kind === 'ethernet') return 'wire';
  if (kind === 'wifi') return 'air';
  if (kind === 'loopback' || kind === 'same host') return 'inner';
  return 'other';
}

/** All that is known, in words. */
export function pairFacts(pair: Pair): [string, string][] {
  const link = pair.forth ?? pair.back;
  const loss = worse(pair.forth?.loss_ppm, pair.back?.loss_ppm);
  const slowest = [pair.forth?.bytes_per_s, pair.back?.bytes_per_s].filter((one) => one);
  return [
    ['Kind', isUp(pair) ? classOf(pair) : 'down'],
    ['Latency', pairLatency(pair)],
    ['Jitter', latency(link?.jitter_ns)],
    ['Loss', loss === null || loss === undefined ? '–' : percent(loss / 1e6)],
    ['Speed', slowest.length ? rate(Math.min(...(slowest as number[]))) : '–'],
  ];
}

export function memoryWords(used: number, all: number): string {
  return `${bytes(used)} of ${bytes(all)} used`;
}
