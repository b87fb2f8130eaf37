/* Why an answer does not move just now, in one sentence for the reader; and which models can be
 * asked. Pure. */
import type { Instance, View } from '../lib/types.ts';
import type { StreamStatus } from './stream.ts';

/* A pause that is shorter is not worth a word. */
export const PAUSE_SHOWN_MS = 1500;

const seconds = (ms: number): string => `${Math.max(1, Math.round(ms / 1000))} s`;

/* The instance that answers for a model: one that is ready before one that is not. */
export function instanceOf(view: View, model: string): Instance | null {
  const all = Object.values(view.instances).filter((instance) => instance.model === model);
  return all.find((instance) => instance.state === 'ready') ?? all[0] ?? null;
}

/* Machines of the instance that are not there, by name. */
function machinesLost(view: View, instance: Instance | null): string[] {
  const names = (instance?.stages ?? [])
    .map((stage) => view.nodes[stage.node])
    .filter((node) => node && (node.state === 'down' || node.state === 'silent'))
    .map((node) => node!.name);
  return [...new Set(names)];
}

/* null: all is well. `silentMs`: since the last piece of text; `hasText`: there was one. */
export function pauseWords(
  view: View,
  model: string,
  status: StreamStatus,
  silentMs: number,
  hasText: boolean,
  nowMs: number,
): string | null {
  if (status.kind === 'broken') {
    const left = (status.retryAtMs ?? nowMs) - nowMs;
    const when = left > 900 ? `Trying again in ${seconds(left)}.` : 'Trying again.';
    return `Lost the stream: ${status.why}. ${when} The answer goes on where it stopped.`;
  }
  const instance = instanceOf(view, model);
  if (instance?.pause) {
    const since = nowMs - instance.pause.since_ms;
    const long = since > 900 ? ` for ${seconds(since)}` : '';
    return `Paused${long}: ${instance.pause.why}. The answer goes on by itself.`;
  }
  if (silentMs < PAUSE_SHOWN_MS) return null;
  const lost = machinesLost(view, instance);
  if (lost.length)
    return `${lost.join(' and ')} does not answer. Its layers go to the other machines; then the answer goes on by itself.`;
  if (status.why) return `The node says: ${status.why}.`;
  if (instance && (instance.state === 'loading' || instance.state === 'placing'))
    return 'The model is being loaded. The answer begins by itself.';
  if (instance && (instance.requests_waiting ?? 0) > 0 && !hasText)
    return `Waiting for a turn: ${instance.requests_waiting} requests wait.`;
  if (!hasText) return `The model reads the prompt (${seconds(silentMs)}).`;
  return `Nothing came for ${seconds(silentMs)}. The node is still there and works on it.`;
}

export interface ModelChoice {
  name: string;
  note: string; // '' when it is ready
  isReady: boolean;
}

const NOTES: Record<string, string> = {
  idle: 'starts with the first question',
  placing: 'is being placed',
  loading: 'is being loaded',
  failed: 'cannot run now',
};

/* Those that the API lists, ready ones first. Without a live view they count as ready. */
export function modelChoices(listed: string[], view: View): ModelChoice[] {
  return listed
    .map((name) => {
      const instance = instanceOf(view, name);
      const isKnown = Object.keys(view.instances).length > 0;
      const note = instance
        ? (NOTES[instance.state] ?? '')
        : isKnown
          ? 'is loaded with the first question'
          : '';
      return { name, note, isReady: !note };
    })
    .sort((a, b) => Number(b.isReady) - Number(a.isReady));
}
