/* What is known of one answer while its stream is read, and what to do when the stream breaks off.
 * Pure: the state is changed by events only, times are given. stream.ts is the shell around it.
 *
 * A broken stream is had again by its id (src/api/resume.h): the same request with the same
 * x-request-id gives the same text, and Last-Event-ID leaves out what is here. */
import type { SseItem } from './sse.ts';

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  cached_tokens: number | null; // null: the server does not tell
}

export interface ApiFault {
  status: number; // 0: an event in mid-stream, or no answer at all
  code: string | null;
  text: string; // for the reader; says what to do
}

export interface Answer {
  completionId: string | null; // GET /api/requests/… knows it by this
  text: string;
  reasoning: string; // what a model thinks, where the server tells it apart
  lastEventId: string | null;
  nEvents: number; // with text: about as many as tokens
  finish: string | null; // "stop", "length"
  usage: Usage | null;
  isDone: boolean; // [DONE] was read
  fault: ApiFault | null;
  waitingFor: string | null; // the last comment, until an event comes
  firstTextMs: number | null; // when the first and the last text came; the caller's clock
  lastTextMs: number | null;
}

export function answerNew(): Answer {
  return {
    completionId: null,
    text: '',
    reasoning: '',
    lastEventId: null,
    nEvents: 0,
    finish: null,
    usage: null,
    isDone: false,
    fault: null,
    waitingFor: null,
    firstTextMs: null,
    lastTextMs: null,
  };
}

type Json = Record<string, unknown>;

const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');
const countOf = (value: unknown): number | null =>
  typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : null;

/* The error of an answer of either kind: {"error":{"message",…}} or {"error":{"text",…}}. */
export function faultFromJson(status: number, value: unknown): ApiFault {
  const error = isObject(value) && isObject(value.error) ? value.error : {};
  const text = textOf(error.text) || textOf(error.message);
  return {
    status,
    code: textOf(error.code) || null,
    text: text || `the node answered with status ${status} and no explanation`,
  };
}

function usageFromJson(value: unknown): Usage | null {
  if (!isObject(value)) return null;
  const prompt = countOf(value.prompt_tokens);
  const completion = countOf(value.completion_tokens);
  const details = isObject(value.prompt_tokens_details) ? value.prompt_tokens_details : {};
  if (prompt === null || completion === null) return null;
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    cached_tokens: countOf(details.cached_tokens),
  };
}

function answerTakeDelta(answer: Answer, choice: Json, nowMs: number): void {
  const delta = isObject(choice.delta) ? choice.delta : {};
  const text = textOf(delta.content);
  const reasoning = textOf(delta.reasoning_content);
  answer.text += text;
  answer.reasoning += reasoning;
  if (text || reasoning) {
    answer.nEvents++;
    answer.firstTextMs ??= nowMs;
    answer.lastTextMs = nowMs;
  }
  if (typeof choice.finish_reason === 'string') answer.finish = choice.finish_reason;
}

/* One thing that was read. An event that is no JSON ends the answer with a fault: what follows
 * cannot be trusted to belong to it. */
export function answerTake(answer: Answer, item: SseItem, nowMs: number): void {
  if (item.kind === 'comment') {
    answer.waitingFor = item.text || null;
    return;
  }
  answer.waitingFor = null;
  if (item.data === '[DONE]') {
    answer.isDone = true;
    return;
  }
  let chunk: unknown;
  try {
    chunk = JSON.parse(item.data);
  } catch {
    chunk = null;
  }
  if (!isObject(chunk)) {
    answer.fault = { status: 0, code: 'malformed', text: 'the stream held something unreadable' };
    return;
  }
  if (isObject(chunk.error)) {
    answer.fault = faultFromJson(0, chunk);
    return;
  }
  if (typeof chunk.id === 'string') answer.completionId = chunk.id;
  const choices = Array.isArray(chunk.choices) ? chunk.choices : [];
  if (isObject(choices[0])) answerTakeDelta(answer, choices[0], nowMs);
  answer.usage = usageFromJson(chunk.usage) ?? answer.usage;
  if (item.id) answer.lastEventId = item.id;
}

/* Tokens a second as this browser saw them; null: too few to tell. */
export function answerTokensPerSecond(answer: Answer): number | null {
  const n = answer.usage?.completion_tokens ?? answer.nEvents;
  if (answer.firstTextMs === null || answer.lastTextMs === null || n < 2) return null;
  const ms = answer.lastTextMs - answer.firstTextMs;
  return ms > 0 ? ((n - 1) * 1000) / ms : null;
}

// ---- when it breaks off ----

export type Break =
  | { kind: 'network' } // no connection, or it broke
  | { kind: 'ended' } // the stream ended without [DONE]
  | { kind: 'silent' } // nothing came for SILENCE_MS, not even a comment
  | { kind: 'refused'; fault: ApiFault; retryAfterMs: number | null }
  | { kind: 'error'; fault: ApiFault }; // an event in mid-stream

export type Next = { kind: 'retry'; inMs: number; why: string } | { kind: 'fail'; fault: ApiFault };

/* A node sends a comment every few seconds at the latest. */
export const SILENCE_MS = 30_000;
/* From the first break without an event in between until the reader is asked. */
export const RESUME_FOR_MS = 10 * 60_000;
const ERRORS_MAX = 3; // errors in mid-stream, one after another
const LONGEST_WAIT_MS = 5_000;

const ASK_AGAIN = [429, 500, 502, 503, 504];
/* Codes after which the same request cannot do better. */
const FINAL_CODES = ['answer_differs', 'no_memory', 'malformed', 'context_length_exceeded'];

function backoffMs(attempt: number): number {
  return attempt === 0 ? 0 : Math.min(LONGEST_WAIT_MS, 250 * 2 ** attempt);
}

function unreachable(): ApiFault {
  return {
    status: 0,
    code: 'unreachable',
    text:
      'This node has not answered for ten minutes. Start it again and press Go on, or open the ' +
      'page of another node and ask there.',
  };
}

/* `attempt`: breaks without an event in between, 0 at first. `sinceMs`: since the first of them.
 * `hasBegun`: some of the answer is here, so that the request itself was good. */
export function afterBreak(
  what: Break,
  attempt: number,
  sinceMs: number,
  hasBegun: boolean,
): Next {
  if (sinceMs > RESUME_FOR_MS) return { kind: 'fail', fault: unreachable() };
  const inMs = backoffMs(attempt);
  switch (what.kind) {
    case 'network':
      return { kind: 'retry', inMs: Math.max(inMs, 250), why: 'this node does not answer' };
    case 'ended':
      return { kind: 'retry', inMs, why: 'the connection ended early' };
    case 'silent':
      return { kind: 'retry', inMs, why: 'nothing came for a while' };
    case 'error':
      if (FINAL_CODES.includes(what.fault.code ?? '') || attempt >= ERRORS_MAX)
        return { kind: 'fail', fault: what.fault };
      return { kind: 'retry', inMs: Math.max(inMs, 1000), why: what.fault.text };
    case 'refused':
      return afterRefusal(what.fault, Math.max(inMs, what.retryAfterMs ?? 1000), hasBegun);
  }
}

/* A node that has just started does not know its models for a moment: an answer that has begun
 * waits for them. */
function afterRefusal(fault: ApiFault, inMs: number, hasBegun: boolean): Next {
  const again = ASK_AGAIN.includes(fault.status) || (hasBegun && fault.status === 404);
  if (!again || FINAL_CODES.includes(fault.code ?? '')) return { kind: 'fail', fault };
  return { kind: 'retry', inMs: Math.min(inMs, 30_000), why: fault.text };
}
