/* One answer of POST /v1/chat/completions, read as it comes and had again when its stream breaks
 * off: the shell around answer.ts.
 *
 * Only this page's own node is asked (Content-Security-Policy: connect-src 'self'). When a machine
 * that computes is lost, that node goes on by itself. When this node is lost, the page asks it again
 * until it is back; the answer's id and position make the text go on where it stopped. */
import {
  type Answer,
  type ApiFault,
  type Break,
  SILENCE_MS,
  afterBreak,
  answerTake,
  faultFromJson,
} from './answer.ts';
import { SseParser } from './sse.ts';

export interface StreamStatus {
  kind: 'asking' | 'reading' | 'waiting' | 'broken';
  why: string | null; // of waiting (the node's comment) and broken
  retryAtMs: number | null;
}

export interface StreamHooks {
  changed(answer: Answer): void; // after each piece of the stream
  status(status: StreamStatus): void;
}

export interface StreamShell {
  fetch: typeof fetch;
  now(): number; // ms
  sleep(ms: number, signal: AbortSignal): Promise<void>; // ends early when aborted
}

export const browserShell: StreamShell = {
  fetch: (input, init) => fetch(input, init),
  now: () => performance.timeOrigin + performance.now(),
  sleep: (ms, signal) =>
    new Promise((resolve) => {
      if (signal.aborted) return resolve();
      const timer = setTimeout(resolve, ms);
      signal.addEventListener('abort', () => (clearTimeout(timer), resolve()), { once: true });
    }),
};

/* Letters that x-request-id takes. crypto.randomUUID needs a secure page, this does not. */
export function requestIdNew(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `page-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}

function retryAfterMs(response: Response): number | null {
  const seconds = Number(response.headers.get('retry-after') ?? Number.NaN);
  return Number.isFinite(seconds) && seconds >= 0 ? seconds * 1000 : null;
}

async function readFault(response: Response): Promise<ApiFault> {
  const text = await response.text().catch(() => '');
  try {
    return faultFromJson(response.status, JSON.parse(text));
  } catch {
    return faultFromJson(response.status, null);
  }
}

/* Reads until [DONE], an error or the end; null: it is done. */
async function readEvents(
  response: Response,
  answer: Answer,
  hooks: StreamHooks,
  shell: StreamShell,
  alive: () => void,
): Promise<Break | null> {
  const reader = response.body!.getReader();
  const decoder = new TextDecoder();
  const parser = new SseParser();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return { kind: 'ended' };
      alive();
      for (const item of parser.push(decoder.decode(value, { stream: true }))) {
        answerTake(answer, item, shell.now());
        if (answer.fault) return { kind: 'error', fault: answer.fault };
      }
      hooks.changed(answer);
      hooks.status({
        kind: answer.waitingFor ? 'waiting' : 'reading',
        why: answer.waitingFor,
        retryAtMs: null,
      });
      if (answer.isDone) return null;
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

function headersOf(answer: Answer, requestId: string): Record<string, string> {
  const headers: Record<string, string> = {
    'content-type': 'application/json',
    'x-request-id': requestId,
  };
  if (answer.lastEventId) headers['last-event-id'] = answer.lastEventId;
  return headers;
}

/* One attempt. An abort of the caller's is thrown on. */
async function attemptOnce(
  body: string,
  requestId: string,
  answer: Answer,
  hooks: StreamHooks,
  signal: AbortSignal,
  shell: StreamShell,
): Promise<Break | null> {
  const own = new AbortController();
  const abort = () => own.abort();
  signal.addEventListener('abort', abort, { once: true });
  let isSilent = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => ((isSilent = true), own.abort()), SILENCE_MS);
  };
  try {
    alive();
    const response = await shell.fetch('/v1/chat/completions', {
      method: 'POST',
      headers: headersOf(answer, requestId),
      body,
      signal: own.signal,
      cache: 'no-store',
    });
    if (!response.ok || !response.body)
      return {
        kind: 'refused',
        fault: await readFault(response),
        retryAfterMs: retryAfterMs(response),
      };
    return await readEvents(response, answer, hooks, shell, alive);
  } catch (cause) {
    if (signal.aborted) throw cause;
    if (cause instanceof RangeError)
      return { kind: 'error', fault: { status: 0, code: 'malformed', text: cause.message } };
    return isSilent ? { kind: 'silent' } : { kind: 'network' };
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', abort);
  }
}

/* Until the answer is done, failed (answer.fault) or `signal` is aborted: then "stopped". `answer`
 * may have a text and a position already: it goes on from there. */
export async function streamAnswer(
  body: object,
  requestId: string,
  answer: Answer,
  hooks: StreamHooks,
  signal: AbortSignal,
  shell: StreamShell = browserShell,
): Promise<'done' | 'stopped' | 'failed'> {
  const bytes = JSON.stringify({
    ...body,
    stream: true,
    stream_options: { include_usage: true },
  });
  let attempt = 0;
  let brokenSinceMs: number | null = null;
  hooks.status({ kind: 'asking', why: null, retryAtMs: null });
  while (!signal.aborted) {
    const before = answer.lastEventId;
    answer.fault = null;
    let what: Break | null;
    try {
      what = await attemptOnce(bytes, requestId, answer, hooks, signal, shell);
    } catch {
      return 'stopped';
    }
    if (!what) return 'done';
    if (signal.aborted) return 'stopped';
    if (answer.lastEventId !== before) {
      attempt = 0;
      brokenSinceMs = null;
    }
    const nowMs = shell.now();
    brokenSinceMs ??= nowMs;
    const next = afterBreak(what, attempt++, nowMs - brokenSinceMs, answer.lastEventId !== null);
    if (next.kind === 'fail') {
      answer.fault = next.fault;
      hooks.changed(answer);
      return 'failed';
    }
    answer.fault = null;
    hooks.status({ kind: 'broken', why: next.why, retryAtMs: nowMs + next.inMs });
    await shell.sleep(next.inMs, signal);
  }
  return 'stopped';
}
