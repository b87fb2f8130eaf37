/* A request over its stages and links, as bars of the time it took. Pure. */
import type { RequestRecord } from '../lib/types.ts';

export interface Part {
  kind: 'compute' | 'link' | 'wait';
  ms: number;
  share: number; /* of the whole */
}

export interface Lane {
  node: string;
  device: string;
  first_layer: number;
  n_layers: number;
  link_bytes: number | null;
  parts: Part[];
}

export function wholeMs(request: RequestRecord): number {
  const longest = Math.max(
    0,
    ...(request.stages ?? []).map(
      (stage) => (stage.compute_ms ?? 0) + (stage.wait_ms ?? 0) + (stage.link_ms ?? 0),
    ),
  );
  return Math.max(request.total_ms ?? 0, longest, 1);
}

export function lanesOf(request: RequestRecord): Lane[] {
  const whole = wholeMs(request);
  return (request.stages ?? []).map((stage) => {
    const times = [
      ['compute', stage.compute_ms],
      ['link', stage.link_ms],
      ['wait', stage.wait_ms],
    ] as const;
    return {
      node: stage.node,
      device: stage.device,
      first_layer: stage.first_layer,
      n_layers: stage.n_layers,
      link_bytes: stage.link_bytes ?? null,
      parts: times.flatMap(([kind, ms]) =>
        ms != null && ms > 0 ? [{ kind, ms, share: ms / whole }] : [],
      ),
    };
  });
}

export interface Phase {
  kind: 'queue' | 'prompt' | 'answer' | 'pause';
  from: number; /* shares of the whole */
  share: number;
  ms: number;
  why?: string;
}

/** Waiting, reading the prompt, answering, and the pauses in between. */
export function phasesOf(request: RequestRecord): Phase[] {
  const whole = wholeMs(request);
  const queue = Math.min(request.queue_ms ?? 0, whole);
  const first = Math.min(Math.max(request.ttft_ms ?? queue, queue), whole);
  const out: Phase[] = [];
  const add = (kind: Phase['kind'], from: number, to: number, why?: string) => {
    if (to > from)
      out.push({
        kind,
        from: from / whole,
        share: (to - from) / whole,
        ms: to - from,
        ...(why ? { why } : {}),
      });
  };
  add('queue', 0, queue);
  if (request.ttft_ms != null) {
    add('prompt', queue, first);
    add('answer', first, whole);
  } else add('prompt', queue, whole);
  for (const pause of request.pauses ?? []) {
    const from = Math.min(Math.max(pause.at_ms - request.started_ms, 0), whole);
    add('pause', from, Math.min(from + pause.ms, whole), pause.why ?? '');
  }
  return out;
}

export function outcomeWords(request: RequestRecord): string {
  const words = { done: 'done', stopped: 'stopped', cancelled: 'cancelled', failed: 'failed' };
  return request.outcome ? words[request.outcome] : 'under way';
}
