/* Questions to the node that served this page. Every failure is an ApiError whose text a person can
 * act on. */

export class ApiError extends Error {
  readonly status: number; /* 0: no answer */
  readonly code: string;
  constructor(status: number, code: string, text: string) {
    super(text);
    this.status = status;
    this.code = code;
  }
}

type Body = Record<string, unknown>;

function problemOf(status: number, text: string): ApiError {
  const first = text.split('\n', 1)[0] ?? '';
  for (const candidate of [text, first]) {
    try {
      const error = (JSON.parse(candidate) as { error?: Record<string, string> }).error;
      const said = error?.text ?? error?.message;
      if (said) return new ApiError(status, error?.code ?? 'unknown', said);
    } catch {
      /* not JSON: the status must do */
    }
  }
  return new ApiError(status, 'unknown', `The node answered with status ${status}.`);
}

async function send(method: string, path: string, body?: Body, signal?: AbortSignal) {
  try {
    return await fetch(path, {
      method,
      cache: 'no-store',
      headers: body ? { 'Content-Type': 'application/json' } : {},
      body: body ? JSON.stringify(body) : null,
      signal: signal ?? null,
    });
  } catch (problem) {
    if (signal?.aborted) throw problem;
    throw new ApiError(0, 'unreachable', 'The node does not answer. Is it still running?');
  }
}

async function ask<T>(method: string, path: string, body?: Body, signal?: AbortSignal): Promise<T> {
  const answer = await send(method, path, body, signal);
  const text = await answer.text();
  if (!answer.ok) throw problemOf(answer.status, text);
  const whole = text.trim();
  const last = whole.slice(whole.lastIndexOf('\n') + 1);
  let value: unknown;
  try {
    value = JSON.parse(whole);
  } catch {
    value = JSON.parse(last); /* several lines: the last one is the answer */
  }
  if (typeof value === 'object' && value !== null && 'error' in value && value.error)
    throw problemOf(answer.status, JSON.stringify(value));
  return value as T;
}

/** An answer of several lines, all at once. */
export async function getLines(path: string): Promise<Record<string, unknown>[]> {
  const answer = await send('GET', path);
  const text = await answer.text();
  if (!answer.ok) throw problemOf(answer.status, text);
  const lines = text.split('\n').filter((line) => line.trim());
  return lines.map((line) => JSON.parse(line) as Record<string, unknown>);
}

export const getJson = <T>(path: string, signal?: AbortSignal) =>
  ask<T>('GET', path, undefined, signal);
export const postJson = <T>(path: string, body: Body, signal?: AbortSignal) =>
  ask<T>('POST', path, body, signal);
export const deleteJson = <T>(path: string) => ask<T>('DELETE', path);

/** An answer of several lines, each told as it comes. Resolves with the last. */
export async function postLines(
  path: string,
  body: Body,
  onLine: (line: Record<string, unknown>) => void,
  signal?: AbortSignal,
): Promise<Record<string, unknown> | null> {
  const answer = await send('POST', path, body, signal);
  if (!answer.ok || !answer.body) throw problemOf(answer.status, await answer.text());
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let last: Record<string, unknown> | null = null;
  const take = (line: string) => {
    if (!line.trim()) return;
    last = JSON.parse(line) as Record<string, unknown>;
    if (last.error) throw problemOf(answer.status, line);
    onLine(last);
  };
  for (;;) {
    const { value, done } = await reader.read();
    const lines = (rest + (value ?? '')).split('\n');
    rest = lines.pop() ?? '';
    lines.forEach(take);
    if (done) break;
  }
  take(rest);
  return last;
}

export function textOf(problem: unknown): string {
  return problem instanceof Error ? problem.message : String(problem);
}

export function wasCancelled(problem: unknown): boolean {
  return problem instanceof DOMException && problem.name === 'AbortError';
}
