/* Conversations as a file, and from one. Pure. A file is hostile until it is read: whatever is in
 * it, what comes out are whole conversations within limits. What the browser's own store gives goes
 * the same way, for it may be of another version. */
import type { Usage } from './answer.ts';
import { madeRead } from './made.ts';
import { samplingRead } from './sampling.ts';
import {
  type AnswerFacts,
  type Conversation,
  MESSAGES_MAX,
  type Message,
  type Outcome,
  idNew,
} from './tree.ts';

export const FILE_BYTES_MAX = 64 * 1024 * 1024;
export const CONVERSATIONS_MAX = 500;
const FORMAT = 'medley-chats';
const ID = /^[A-Za-z0-9_-]{1,64}$/;
const REQUEST_ID = /^[A-Za-z0-9_.:+/=~@-]{1,128}$/;
const EVENT_ID = /^[0-9]{1,10}(-[0-9a-f]{8})?$/;
const OUTCOMES: readonly Outcome[] = ['streaming', 'done', 'length', 'stopped', 'failed'];

type Json = Record<string, unknown>;

const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');
const matching = (value: unknown, pattern: RegExp): string | null =>
  typeof value === 'string' && pattern.test(value) ? value : null;
const numberOf = (value: unknown): number | null =>
  typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : null;

function readUsage(value: unknown): Usage | null {
  if (!isObject(value)) return null;
  const prompt = numberOf(value.prompt_tokens);
  const completion = numberOf(value.completion_tokens);
  if (prompt === null || completion === null) return null;
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    cached_tokens: numberOf(value.cached_tokens),
  };
}

function readFacts(value: unknown): AnswerFacts | null {
  if (!isObject(value)) return null;
  const requestId = matching(value.requestId, REQUEST_ID);
  const outcome = OUTCOMES.find((each) => each === value.outcome) ?? 'stopped';
  return {
    requestId: requestId ?? '',
    completionId: matching(value.completionId, REQUEST_ID),
    lastEventId: matching(value.lastEventId, EVENT_ID),
    outcome: outcome === 'streaming' && !requestId ? 'stopped' : outcome,
    problem: textOf(value.problem) || null,
    model: textOf(value.model),
    sampling: samplingRead(value.sampling),
    usage: readUsage(value.usage),
    nEvents: numberOf(value.nEvents) ?? 0,
    firstTextMs: numberOf(value.firstTextMs),
    lastTextMs: numberOf(value.lastTextMs),
    askedMs: numberOf(value.askedMs) ?? 0,
    system: textOf(value.system),
    owner: textOf(value.owner),
    made: madeRead(value.made),
  };
}

function readMessage(value: unknown, known: Set<string>): Message | null {
  if (!isObject(value)) return null;
  const id = matching(value.id, ID);
  const parent = value.parent === null ? null : matching(value.parent, ID);
  const role = value.role;
  if (!id || known.has(id) || (role !== 'user' && role !== 'assistant')) return null;
  /* A parent comes before its children: so there is no ring. */
  if (value.parent !== null && (!parent || !known.has(parent))) return null;
  known.add(id);
  return {
    id,
    parent,
    role,
    text: textOf(value.text),
    reasoning: textOf(value.reasoning),
    createdMs: numberOf(value.createdMs) ?? 0,
    answer: role === 'assistant' ? readFacts(value.answer) : null,
  };
}

function readChosen(value: unknown, messages: Message[]): Record<string, string> {
  const chosen: Record<string, string> = {};
  if (!isObject(value)) return chosen;
  for (const message of messages) {
    const key = message.parent ?? '';
    if (Object.hasOwn(value, key) && value[key] === message.id) chosen[key] = message.id;
  }
  return chosen;
}

/* null: it is no conversation. */
export function conversationRead(value: unknown): Conversation | null {
  if (!isObject(value) || !Array.isArray(value.messages)) return null;
  const id = matching(value.id, ID);
  if (!id) return null;
  const known = new Set<string>();
  const messages = value.messages
    .slice(0, MESSAGES_MAX)
    .map((message) => readMessage(message, known))
    .filter((message) => message !== null);
  const createdMs = numberOf(value.createdMs) ?? 0;
  return {
    id,
    title: textOf(value.title).slice(0, 200),
    createdMs,
    changedMs: numberOf(value.changedMs) ?? createdMs,
    system: textOf(value.system),
    model: textOf(value.model),
    sampling: samplingRead(value.sampling),
    messages,
    chosen: readChosen(value.chosen, messages),
  };
}

export function conversationsToFile(conversations: Conversation[]): string {
  return JSON.stringify({ format: FORMAT, version: 1, conversations }, null, 1);
}

export interface Imported {
  conversations: Conversation[];
  nLeftOut: number; // that could not be read
}

/* Throws Error with what the reader should know when it is no such file. A conversation whose id is
 * `taken` gets another one: an import never overwrites. */
export function conversationsFromFile(text: string, taken: (id: string) => boolean): Imported {
  if (text.length > FILE_BYTES_MAX)
    throw new Error(`The file is too large: at most ${FILE_BYTES_MAX / 1024 / 1024} MiB.`);
  let file: unknown;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error('The file is not JSON. Choose one that Export wrote.');
  }
  if (!isObject(file) || file.format !== FORMAT || !Array.isArray(file.conversations))
    throw new Error('These are no chats of Medley. Choose a file that Export wrote.');
  if (file.version !== 1)
    throw new Error('The file is of a newer Medley. Import it with that version.');
  const conversations: Conversation[] = [];
  const given = new Set<string>();
  for (const each of file.conversations.slice(0, CONVERSATIONS_MAX)) {
    const conversation = conversationRead(each);
    if (!conversation) continue;
    if (taken(conversation.id) || given.has(conversation.id)) conversation.id = idNew();
    given.add(conversation.id);
    conversations.push(conversation);
  }
  return { conversations, nLeftOut: file.conversations.length - conversations.length };
}
