/** A client of a node's HTTP API, typed by the document that the node serves (openapi.ts).
 *
 *     const medley = new Medley({ base: 'http://127.0.0.1:8080', token: process.env.MEDLEY_TOKEN });
 *     const { data } = await medley.get('/v1/models');
 *     for await (const chunk of medley.stream('/v1/chat/completions', { model: data[0].id, messages }))
 *       …
 *
 * What is refused is thrown as a MedleyError. Nothing is tried again. */
import type { paths } from './openapi.js';

type Method = 'get' | 'post' | 'delete';
type Having<M extends Method> = { [P in keyof paths]: paths[P] extends Record<M, unknown> ? P : never }[keyof paths];
type Operation<P extends keyof paths, M extends Method> = paths[P] extends Record<M, infer O> ? O : never;
type Content<O> = O extends { responses: { 200: { content: infer C } } } ? C : never;
/** What an operation is sent. */
export type Body<P extends Having<'post'>> =
  Operation<P, 'post'> extends { requestBody: { content: { 'application/json': infer B } } } ? B : undefined;
/** What it answers as a whole: of lines the last. */
export type Answer<P extends keyof paths, M extends Method> =
  Content<Operation<P, M>> extends { 'application/json': infer A } ? A
    : Content<Operation<P, M>> extends { 'application/x-ndjson': infer L } ? L : string;
/** What it answers piece by piece: the data of events, or lines. */
export type Piece<P extends keyof paths, M extends Method> =
  Content<Operation<P, M>> extends { 'text/event-stream': infer E } ? E
    : Content<Operation<P, M>> extends { 'application/x-ndjson': infer L } ? L : never;

export interface Settings {
  /** The node's address, as in `http://127.0.0.1:8080`. */
  base: string;
  /** Where the node asks for one. */
  token?: string;
  fetch?: typeof fetch;
}

export interface Options {
  /** For the names in braces of a path. */
  path?: Record<string, string>;
  query?: Record<string, string>;
  signal?: AbortSignal;
}

export class MedleyError extends Error {
  constructor(message: string, readonly status: number, readonly code: string | null = null, readonly param: string | null = null) {
    super(message);
    this.name = 'MedleyError';
  }
}

/** The error in a value of any of the interfaces' shapes; undefined: it is none. */
function errorIn(value: unknown, status: number): MedleyError | undefined {
  const error = value !== null && typeof value === 'object' && 'error' in value ? value.error : undefined;
  if (typeof error === 'string') return new MedleyError(error, status);
  if (error === null || typeof error !== 'object' || !('message' in error)) return undefined;
  const { message, code, param } = error as { message: string; code?: string | null; param?: string | null };
  return new MedleyError(message, status, code ?? null, param ?? null);
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

async function* linesOf(response: Response): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const bytes of response.body as unknown as AsyncIterable<Uint8Array>) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split(/\r?\n/);
    rest = lines.pop() ?? '';
    yield* lines;
  }
  if (rest) yield rest;
}

/** The JSON of each line, or of each event: those of a node have one line of data. */
async function* piecesOf(response: Response): AsyncGenerator<unknown> {
  const isEvents = response.headers.get('content-type')?.startsWith('text/event-stream');
  for await (const line of linesOf(response)) {
    const text = isEvents ? (line.startsWith('data:') ? line.slice(5).trim() : '') : line.trim();
    if (text === '[DONE]') return;
    if (text === '') continue;
    const value = parse(text);
    const error = errorIn(value, response.status);
    if (error) throw error;
    yield value;
  }
}

export class Medley {
  readonly #settings: Settings;

  constructor(settings: Settings) {
    this.#settings = settings;
  }

  async #send(method: Method, path: string, body: unknown, { path: names = {}, query, signal }: Options): Promise<Response> {
    const { base, token, fetch: send = fetch } = this.#settings;
    const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(names[name] ?? ''));
    const headers: Record<string, string> = {};
    if (token) headers['authorization'] = `Bearer ${token}`;
    if (body !== undefined) headers['content-type'] = 'application/json';
    const search = query ? `?${new URLSearchParams(query)}` : '';
    const response = await send(base.replace(/\/$/, '') + filled + search, {
      method: method.toUpperCase(), headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }), ...(signal ? { signal } : {}),
    });
    if (response.ok) return response;
    const text = await response.text();
    throw errorIn(parse(text), response.status) ?? new MedleyError(text || response.statusText, response.status);
  }

  async #whole(response: Response): Promise<unknown> {
    const type = response.headers.get('content-type') ?? '';
    if (type.startsWith('application/json')) return response.json();
    if (!type.startsWith('application/x-ndjson')) return response.text();
    let last: unknown;
    for await (const piece of piecesOf(response)) last = piece;
    return last;
  }

  async get<P extends Having<'get'>>(path: P, options: Options = {}): Promise<Answer<P, 'get'>> {
    return (await this.#whole(await this.#send('get', path, undefined, options))) as Answer<P, 'get'>;
  }

  async post<P extends Having<'post'>>(path: P, body: Body<P>, options: Options = {}): Promise<Answer<P, 'post'>> {
    return (await this.#whole(await this.#send('post', path, body, options))) as Answer<P, 'post'>;
  }

  async delete<P extends Having<'delete'>>(path: P, options: Options = {}): Promise<Answer<P, 'delete'>> {
    return (await this.#whole(await this.#send('delete', path, undefined, options))) as Answer<P, 'delete'>;
  }

  /** The pieces of a streamed answer, as they come. Of requests that have a field `stream` it is set. */
  async *stream<P extends Having<'post'>>(path: P, body: Body<P>, options: Options = {}): AsyncGenerator<Piece<P, 'post'>> {
    const asked = path.startsWith('/api/') ? body : { ...(body as object), stream: true }; // those stream unless told not to
    yield* piecesOf(await this.#send('post', path, asked, options)) as AsyncGenerator<Piece<P, 'post'>>;
  }

  /** The pieces of an answer that goes on by itself, such as `/api/live`. */
  async *watch<P extends Having<'get'>>(path: P, options: Options = {}): AsyncGenerator<Piece<P, 'get'>> {
    yield* piecesOf(await this.#send('get', path, undefined, options)) as AsyncGenerator<Piece<P, 'get'>>;
  }
}
