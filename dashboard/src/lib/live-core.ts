/* What the page knows of the cluster, and whether that is still true. Pure: messages and the time go
 * in; what to do comes out. The shell around it (live.svelte.ts) owns the connection and the clock.
 *
 *     connecting ──snapshot──▶ live ──silence──▶ stale ──any byte──▶ live
 *         ▲                      └──────end, error──────▶ waiting ──backoff over──┘
 *         └───────────────────────────────────────────────┘
 */
import { applyPatch } from './patch.ts';
import type { ClusterEvent, View } from './types.ts';

export type Phase = 'connecting' | 'live' | 'stale' | 'waiting' | 'refused';

export const EVENTS_MAX = 400;
export const SILENCE_MS = 8000; /* the node gives a sign of life every 5 s */
export const BACKOFF_FIRST_MS = 400;
export const BACKOFF_MAX_MS = 8000;

export function emptyView(): View {
  return {
    time_ms: 0,
    self: '',
    cluster: null,
    nodes: {},
    links: {},
    models: {},
    instances: {},
    alerts: {},
    totals: null,
  };
}

/** All keys of the view that are objects by id are there, whatever was sent. */
export function wholeView(sent: Partial<View>): View {
  const empty = emptyView();
  for (const key of ['nodes', 'links', 'models', 'instances', 'alerts'] as const) {
    if (typeof sent[key] !== 'object' || sent[key] === null) sent[key] = empty[key] as never;
  }
  return { ...empty, ...sent };
}

export interface LiveState {
  phase: Phase;
  view: View;
  events: ClusterEvent[]; /* oldest first */
  failures: number; /* in a row */
  heard_at: number; /* by the page's clock, in ms */
  retry_at: number;
}

export function newLiveState(): LiveState {
  return {
    phase: 'connecting',
    view: emptyView(),
    events: [],
    failures: 0,
    heard_at: 0,
    retry_at: 0,
  };
}

/** Between `least` and twice as much, so that all pages of a lost node do not come back at once. */
export function backoffMs(failures: number, random: number): number {
  const least = Math.min(BACKOFF_FIRST_MS * 2 ** Math.max(0, failures - 1), BACKOFF_MAX_MS);
  return Math.min(least * (1 + random), BACKOFF_MAX_MS);
}

export function liveHeard(state: LiveState, now: number): void {
  state.heard_at = now;
  if (state.phase === 'stale') state.phase = 'live';
}

export function liveMessage(state: LiveState, event: string, data: string): void {
  if (event === 'snapshot') {
    state.view = wholeView(JSON.parse(data) as Partial<View>);
    state.phase = 'live';
    state.failures = 0;
  } else if (event === 'change' && state.phase !== 'connecting') {
    applyPatch(
      state.view as unknown as Record<string, unknown>,
      JSON.parse(data) as Record<string, unknown>,
    );
  } else if (event === 'event') {
    liveEvent(state, JSON.parse(data) as ClusterEvent);
  }
}

/** A new connection tells the last 200 again. */
function liveEvent(state: LiveState, event: ClusterEvent): void {
  const last = state.events.at(-1);
  if (last && event.index <= last.index) return;
  state.events.push(event);
  if (state.events.length > EVENTS_MAX) state.events.splice(0, state.events.length - EVENTS_MAX);
}

export function liveLost(state: LiveState, now: number, random: number): void {
  state.failures += 1;
  state.phase = 'waiting';
  state.retry_at = now + backoffMs(state.failures, random);
}

/** What is to be done now: nothing, connect anew, or drop a connection that has gone silent. */
export function liveTick(state: LiveState, now: number): 'nothing' | 'connect' | 'drop' {
  if (state.phase === 'waiting' && now >= state.retry_at) {
    state.phase = 'connecting';
    state.heard_at = now;
    return 'connect';
  }
  const silent = now - state.heard_at;
  if (state.phase === 'live' && silent > SILENCE_MS) state.phase = 'stale';
  if ((state.phase === 'stale' || state.phase === 'connecting') && silent > 2 * SILENCE_MS)
    return 'drop';
  return 'nothing';
}
