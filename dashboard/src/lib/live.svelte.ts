/* The stream /api/live, for the views: `live.view` changes field by field. */
import { SseParser } from '../chat/sse.ts';
import { isInside, sessionLost } from './session.svelte.ts';
import {
  liveHeard,
  liveLost,
  liveMessage,
  liveTick,
  newLiveState,
  type LiveState,
} from './live-core.ts';

export const live: LiveState = $state(newLiveState());

const TICK_MS = 250;
let running: AbortController | null = null;
let ticker = 0;

async function readStream(controller: AbortController): Promise<void> {
  const answer = await fetch('/api/live', {
    headers: { Accept: 'text/event-stream' },
    signal: controller.signal,
    cache: 'no-store',
  });
  if (answer.status === 401 || answer.status === 403) {
    live.phase = 'refused';
    if (answer.status === 401) sessionLost(); /* 403: signed in, but may not read; it may still ask */
    return;
  }
  if (!answer.ok || !answer.body) throw new Error(`the stream answered ${answer.status}`);
  const parser = new SseParser();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error('the stream ended');
    liveHeard(live, performance.now());
    for (const item of parser.push(value))
      if (item.kind === 'event') liveMessage(live, item.event, item.data);
  }
}

function connect(): void {
  const controller = new AbortController();
  running = controller;
  live.heard_at = performance.now();
  readStream(controller).catch(() => {
    if (running !== controller) return;
    running = null;
    liveLost(live, performance.now(), Math.random());
  });
}

function tick(): void {
  const todo = liveTick(live, performance.now());
  if (todo === 'connect') connect();
  else if (todo === 'drop') running?.abort();
}

/** The network is back, or the page is seen again: do not wait for the backoff. */
function hurry(): void {
  if (live.phase === 'waiting' && !document.hidden) live.retry_at = 0;
}

export function liveStart(): void {
  if (ticker || !isInside()) return;
  Object.assign(live, newLiveState());
  connect();
  ticker = window.setInterval(tick, TICK_MS);
  window.addEventListener('online', hurry);
  document.addEventListener('visibilitychange', hurry);
}

export function liveStop(): void {
  window.clearInterval(ticker);
  ticker = 0;
  const controller = running;
  running = null;
  controller?.abort();
}
