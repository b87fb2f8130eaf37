/* Conversations in this browser (IndexedDB): they are never on a node. Bounded: the oldest make
 * room. Where the browser keeps nothing (a private window may not), they live as long as the page. */
import { conversationRead } from './transfer.ts';
import { type Conversation, titleOf } from './tree.ts';

export const STORED_MAX = 500;
const DATABASE = 'medley-chat';
const TABLE = 'conversations';

export interface Summary {
  id: string;
  title: string;
  changedMs: number;
}

export function summaryOf(conversation: Conversation): Summary {
  return {
    id: conversation.id,
    title: titleOf(conversation),
    changedMs: conversation.changedMs,
  };
}

export interface ChatStore {
  isLasting: boolean; // false: gone when the page is closed
  all(): Promise<Conversation[]>;
  get(id: string): Promise<Conversation | null>;
  put(conversation: Conversation): Promise<void>;
  remove(id: string): Promise<void>;
}

function asPromise<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error('the browser gave no reason'));
  });
}

function storeInMemory(): ChatStore {
  const kept = new Map<string, Conversation>();
  return {
    isLasting: false,
    all: async () => [...kept.values()],
    get: async (id) => kept.get(id) ?? null,
    put: async (conversation) => void kept.set(conversation.id, conversation),
    remove: async (id) => void kept.delete(id),
  };
}

function storeOf(database: IDBDatabase): ChatStore {
  const table = (mode: IDBTransactionMode) =>
    database.transaction(TABLE, mode).objectStore(TABLE);
  return {
    isLasting: true,
    all: async () =>
      (await asPromise<unknown[]>(table('readonly').getAll()))
        .map(conversationRead)
        .filter((each) => each !== null),
    get: async (id) => conversationRead(await asPromise<unknown>(table('readonly').get(id))),
    put: async (conversation) => void (await asPromise(table('readwrite').put(conversation))),
    remove: async (id) => void (await asPromise(table('readwrite').delete(id))),
  };
}

export async function storeOpen(): Promise<ChatStore> {
  try {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(TABLE, { keyPath: 'id' });
    return storeOf(await asPromise(request));
  } catch {
    return storeInMemory();
  }
}

/* Which to drop so that at most `most` stay: those changed longest ago. Pure. */
export function storedTooMany(summaries: Summary[], most: number): string[] {
  return [...summaries]
    .sort((a, b) => b.changedMs - a.changedMs)
    .slice(most)
    .map((summary) => summary.id);
}
