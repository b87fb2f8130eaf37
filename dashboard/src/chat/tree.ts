/* A conversation: messages in a tree, because a message can be edited or answered again, and what
 * was there before stays. Pure; functions return a new conversation where they change it. */
import type { Usage } from './answer.ts';
import type { AnswerMade } from './made.ts';
import { type Sampling, samplingDefaults } from './sampling.ts';

export type Outcome =
  | 'streaming' // under way; after a reload: to be gone on with
  | 'done'
  | 'length' // cut at max_tokens or at the end of the context
  | 'stopped' // by the reader
  | 'failed';

/* What an answer needs so that it can be gone on with, and what is known of how it was made. */
export interface AnswerFacts {
  requestId: string;
  completionId: string | null;
  lastEventId: string | null;
  outcome: Outcome;
  problem: string | null; // of "failed"
  model: string;
  sampling: Sampling; // what it was asked with: going on needs the same request
  usage: Usage | null;
  nEvents: number;
  firstTextMs: number | null;
  lastTextMs: number | null;
  askedMs: number;
  system: string; // prompt, as it was when the question was asked
  owner: string; // the tab that reads the stream
  made: AnswerMade | null; // by which machines and how fast
}

export interface Message {
  id: string;
  parent: string | null; // null: a first message
  role: 'user' | 'assistant';
  text: string;
  reasoning: string;
  createdMs: number;
  answer: AnswerFacts | null; // of an assistant's
}

export interface Conversation {
  id: string;
  title: string; // '': from the first message
  createdMs: number;
  changedMs: number;
  system: string;
  model: string;
  sampling: Sampling;
  messages: Message[]; // in order of creation: a parent is before its children
  chosen: Record<string, string>; // parent's id ('' for first messages) -> the child shown
}

export const MESSAGES_MAX = 4000; // of one conversation
export const TITLE_MAX = 60;

export function idNew(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

export function conversationNew(model: string, nowMs: number): Conversation {
  return {
    id: idNew(),
    title: '',
    createdMs: nowMs,
    changedMs: nowMs,
    system: '',
    model,
    sampling: samplingDefaults(),
    messages: [],
    chosen: {},
  };
}

const keyOf = (parent: string | null): string => parent ?? '';

export function childrenOf(conversation: Conversation, parent: string | null): Message[] {
  return conversation.messages.filter((message) => message.parent === parent);
}

/* What is shown: from the first message down, at each fork the chosen one, else the newest. */
export function pathOf(conversation: Conversation): Message[] {
  const children = new Map<string, Message[]>();
  for (const message of conversation.messages) {
    const list = children.get(keyOf(message.parent));
    if (list) list.push(message);
    else children.set(keyOf(message.parent), [message]);
  }
  const path: Message[] = [];
  for (let key = ''; ; ) {
    const list = children.get(key);
    if (!list) return path;
    const next = list.find((message) => message.id === conversation.chosen[key]) ?? list.at(-1)!;
    path.push(next);
    key = next.id;
  }
}

/* The same conversation down to `id`, whatever is chosen. */
export function pathTo(conversation: Conversation, id: string): Message[] {
  const byId = new Map(conversation.messages.map((message) => [message.id, message]));
  const path: Message[] = [];
  for (let at = byId.get(id); at; at = at.parent === null ? undefined : byId.get(at.parent))
    path.unshift(at);
  return path;
}

export function messageAdd(conversation: Conversation, message: Message): Conversation {
  if (conversation.messages.length >= MESSAGES_MAX)
    throw new RangeError(
      `A conversation has at most ${MESSAGES_MAX} messages. Begin a new one, or delete a branch.`,
    );
  return {
    ...conversation,
    changedMs: Math.max(conversation.changedMs, message.createdMs),
    messages: [...conversation.messages, message],
    chosen: { ...conversation.chosen, [keyOf(message.parent)]: message.id },
  };
}

export function messageChange(
  conversation: Conversation,
  id: string,
  change: Partial<Message>,
): Conversation {
  return {
    ...conversation,
    messages: conversation.messages.map((message) =>
      message.id === id ? { ...message, ...change } : message,
    ),
  };
}

/* Shows the sibling that is `by` further on (round and round). */
export function branchStep(conversation: Conversation, id: string, by: number): Conversation {
  const message = conversation.messages.find((each) => each.id === id);
  if (!message) return conversation;
  const siblings = childrenOf(conversation, message.parent);
  const at = siblings.indexOf(message);
  const next = siblings[(at + by + siblings.length) % siblings.length]!;
  return { ...conversation, chosen: { ...conversation.chosen, [keyOf(message.parent)]: next.id } };
}

/* Without a message and all that follows it. */
export function branchRemove(conversation: Conversation, id: string): Conversation {
  const gone = new Set([id]);
  for (const message of conversation.messages)
    if (message.parent !== null && gone.has(message.parent)) gone.add(message.id);
  const chosen = Object.fromEntries(
    Object.entries(conversation.chosen).filter(([key, child]) => !gone.has(key) && !gone.has(child)),
  );
  return {
    ...conversation,
    messages: conversation.messages.filter((message) => !gone.has(message.id)),
    chosen,
  };
}

export function titleOf(conversation: Conversation): string {
  if (conversation.title) return conversation.title;
  const text = conversation.messages[0]?.text.replace(/\s+/g, ' ').trim() ?? '';
  if (!text) return 'New chat';
  const letters = Array.from(text);
  return letters.length > TITLE_MAX ? `${letters.slice(0, TITLE_MAX - 1).join('')}…` : text;
}

/* Messages of the API for an answer below `last` (a user's message). What models thought is left
 * out, as their makers advise; so are answers without a word. */
export function messagesForApi(
  conversation: Conversation,
  last: string,
  answerOf: (message: Message) => string,
): { role: string; content: string }[] {
  const system = conversation.system.trim();
  const messages = pathTo(conversation, last)
    .map((message) => ({
      role: message.role,
      content: message.role === 'assistant' ? answerOf(message) : message.text,
    }))
    .filter((message) => message.content !== '');
  return system ? [{ role: 'system', content: system }, ...messages] : messages;
}
