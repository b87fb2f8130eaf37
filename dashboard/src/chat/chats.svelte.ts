/* The conversations of this page and the answers under way. Of the page, not of the view: an answer
 * goes on while another view is looked at. */
import { getJson } from '../lib/api.ts';
import { live } from '../lib/live.svelte.ts';
import type { RequestRecord } from '../lib/types.ts';
import { type Answer, answerNew } from './answer.ts';
import { instanceOf } from './explain.ts';
import { madeFromPage, madeFromRecord } from './made.ts';
import { samplingFields } from './sampling.ts';
import { type ChatStore, STORED_MAX, type Summary, storeOpen, storedTooMany, summaryOf } from './store.ts';
import { type StreamStatus, browserShell, requestIdNew, streamAnswer } from './stream.ts';
import { thoughtSplit } from './think.ts';
import {
  type AnswerFacts,
  type Conversation,
  type Message,
  type Outcome,
  conversationNew,
  idNew,
  messageAdd,
  messageChange,
  messagesForApi,
} from './tree.ts';

/* What is shown of an answer under way. */
export interface Running {
  conversation: string;
  text: string;
  reasoning: string;
  nTokens: number;
  lastTextMs: number | null;
  startedMs: number;
  status: StreamStatus;
  brokenMs: number | null; // since when nothing is read
}

interface Chats {
  isOpen: boolean; // the store was read
  isLasting: boolean;
  problem: string | null; // of the store
  list: Summary[]; // newest first
  now: Conversation | null;
  running: Record<string, Running>; // by message
}

/* How often an answer under way is stored: what a reload may lose is computed again anyhow. */
const STORE_EVERY_MS = 1500;
/* A stream whose tab has not stored for so long is anybody's. */
const ABANDONED_MS = 8000;
const TAB_KEY = 'medley-tab';

export const chats: Chats = $state({
  isOpen: false,
  isLasting: true,
  problem: null,
  list: [],
  now: null,
  running: {},
});

let store: ChatStore | null = null;
let opening: Promise<void> | null = null;
const aborts = new Map<string, AbortController>();
const reading = new Map<string, Answer>(); // by message, while it is under way
const channel = typeof BroadcastChannel === 'undefined' ? null : new BroadcastChannel('medley-chat');

function tabId(): string {
  try {
    const known = sessionStorage.getItem(TAB_KEY);
    if (known) return known;
    const drawn = idNew();
    sessionStorage.setItem(TAB_KEY, drawn);
    return drawn;
  } catch {
    return 'tab';
  }
}

function listPut(summary: Summary): void {
  const rest = chats.list.filter((each) => each.id !== summary.id);
  chats.list = [summary, ...rest].sort((a, b) => b.changedMs - a.changedMs);
}

async function save(conversation: Conversation): Promise<void> {
  listPut(summaryOf(conversation));
  try {
    await store?.put($state.snapshot(conversation) as Conversation);
    chats.problem = null;
    channel?.postMessage(conversation.id);
    for (const id of storedTooMany(chats.list, STORED_MAX)) await chatRemove(id);
  } catch (problem) {
    chats.problem = `The browser could not keep this chat (${String(problem)}). Export it, or delete old ones.`;
  }
}

/* Puts a changed conversation on the screen (if it is there) and in the store. */
function change(conversation: Conversation): void {
  if (chats.now?.id === conversation.id) chats.now = conversation;
  void save(conversation);
}

export function chatChange(conversation: Conversation): void {
  change(conversation);
}

export function chatsOpen(): Promise<void> {
  opening ??= (async () => {
    store = await storeOpen();
    chats.isLasting = store.isLasting;
    const all = await store.all().catch(() => []);
    chats.list = all.map(summaryOf).sort((a, b) => b.changedMs - a.changedMs);
    chats.isOpen = true;
    for (const conversation of all) resumeAll(conversation);
    channel?.addEventListener('message', (event) => void changedElsewhere(String(event.data)));
  })();
  return opening;
}

async function changedElsewhere(id: string): Promise<void> {
  if (Object.values(chats.running).some((running) => running.conversation === id)) return;
  const conversation = await store?.get(id);
  if (!conversation) {
    chats.list = chats.list.filter((each) => each.id !== id);
    if (chats.now?.id === id) chats.now = null;
    return;
  }
  listPut(summaryOf(conversation));
  if (chats.now?.id === id) chats.now = conversation;
}

/* Answers that a reload cut off go on; those of another tab that is there are left to it. */
function resumeAll(conversation: Conversation, isMineNow = false): void {
  for (const message of conversation.messages) {
    if (message.answer?.outcome !== 'streaming') continue;
    const isMine = isMineNow || message.answer.owner === tabId();
    if (isMine || Date.now() - conversation.changedMs > ABANDONED_MS)
      void run(conversation.id, { ...message, answer: { ...message.answer, owner: tabId() } });
  }
}

export async function chatShow(id: string): Promise<void> {
  chats.now = (await store?.get(id)) ?? null;
}

export function chatNew(model: string): Conversation {
  const last = chats.now;
  const fresh = conversationNew(model, Date.now());
  /* Who has set something up wants it in the next chat as well. */
  chats.now = last ? { ...fresh, system: last.system, sampling: last.sampling } : fresh;
  return chats.now;
}

export async function chatRemove(id: string): Promise<void> {
  for (const [message, running] of Object.entries(chats.running))
    if (running.conversation === id) answerStop(message);
  chats.list = chats.list.filter((each) => each.id !== id);
  if (chats.now?.id === id) chats.now = null;
  await store?.remove(id);
  channel?.postMessage(id);
}

export async function chatsAll(): Promise<Conversation[]> {
  return (await store?.all()) ?? [];
}

/* Answers in them that were under way go on here. */
export async function chatsAdd(conversations: Conversation[]): Promise<void> {
  for (const conversation of conversations) {
    await save(conversation);
    resumeAll(conversation, true);
  }
}

// ---- asking and answering ----

function messageNew(role: 'user' | 'assistant', parent: string | null, text: string): Message {
  return { id: idNew(), parent, role, text, reasoning: '', createdMs: Date.now(), answer: null };
}

/* A question below `parent`, and its answer. */
export function chatAsk(conversation: Conversation, parent: string | null, text: string): void {
  const question = messageNew('user', parent, text);
  chatAnswer(messageAdd(conversation, question), question.id);
}

/* One more answer to a question. */
export function chatAnswer(conversation: Conversation, question: string): void {
  const facts: AnswerFacts = {
    requestId: requestIdNew(),
    completionId: null,
    lastEventId: null,
    outcome: 'streaming',
    problem: null,
    model: conversation.model,
    sampling: $state.snapshot(conversation.sampling) as AnswerFacts['sampling'],
    usage: null,
    nEvents: 0,
    firstTextMs: null,
    lastTextMs: null,
    askedMs: Date.now(),
    system: conversation.system,
    owner: tabId(),
    made: null,
  };
  const message = { ...messageNew('assistant', question, ''), answer: facts };
  const next = messageAdd(conversation, message);
  change(next);
  void run(next.id, message, next);
}

/* A stopped or failed answer, from where it is. */
export function chatGoOn(conversation: Conversation, message: Message): void {
  if (!message.answer || chats.running[message.id]) return;
  const answer: AnswerFacts = { ...message.answer, outcome: 'streaming', problem: null, owner: tabId() };
  const next = messageChange(conversation, message.id, { answer });
  change(next);
  void run(next.id, { ...message, answer }, next);
}

export function answerStop(message: string): void {
  aborts.get(message)?.abort();
}

function answerOf(message: Message): Answer {
  const facts = message.answer!;
  return {
    ...answerNew(),
    completionId: facts.completionId,
    text: message.text,
    reasoning: message.reasoning,
    lastEventId: facts.lastEventId,
    nEvents: facts.nEvents,
    firstTextMs: facts.firstTextMs,
    lastTextMs: facts.lastTextMs,
  };
}

/* The chat as another page should have it, what is under way included; its answers end here. */
export function chatHandOver(conversation: Conversation): Conversation {
  let handed = $state.snapshot(conversation) as Conversation;
  for (const message of handed.messages) {
    const answer = reading.get(message.id);
    if (answer) handed = messageChange(handed, message.id, messageWith(message, answer, { owner: '' }));
  }
  return handed;
}

/* What the message becomes with what was read. */
function messageWith(message: Message, answer: Answer, more: Partial<AnswerFacts>): Partial<Message> {
  return {
    text: answer.text,
    reasoning: answer.reasoning,
    answer: {
      ...message.answer!,
      completionId: answer.completionId,
      lastEventId: answer.lastEventId,
      usage: answer.usage,
      nEvents: answer.nEvents,
      firstTextMs: answer.firstTextMs,
      lastTextMs: answer.lastTextMs,
      ...more,
    },
  };
}

async function latest(id: string): Promise<Conversation | null> {
  if (chats.now?.id === id) return chats.now;
  return (await store?.get(id)) ?? null;
}

async function settle(id: string, message: Message, changed: Partial<Message>): Promise<void> {
  const conversation = await latest(id);
  if (conversation)
    change({ ...messageChange(conversation, message.id, changed), changedMs: Date.now() });
}

function requestBody(conversation: Conversation, message: Message): object {
  const facts = message.answer!;
  return {
    model: facts.model,
    messages: messagesForApi(
      { ...conversation, system: facts.system },
      message.parent ?? '',
      (each) => thoughtSplit(each.text, each.reasoning, false).answer,
    ),
    ...samplingFields(facts.sampling),
  };
}

function runningOf(id: string, message: Message): Running {
  return {
    conversation: id,
    text: message.text,
    reasoning: message.reasoning,
    nTokens: message.answer!.nEvents,
    lastTextMs: null,
    startedMs: Date.now(),
    status: { kind: 'asking', why: null, retryAtMs: null },
    brokenMs: null,
  };
}

const FRAME_WAIT_MAX_MS = 500;

/* The screen takes what came once a frame at most, and less often when a frame takes long: a third of
 * the time is the most that is spent on it. */
function screenOf(messageId: string, answer: Answer): { show: () => void; end: () => void } {
  let frame = 0;
  let busyUntil = 0;
  const draw = () => {
    const began = performance.now();
    const running = chats.running[messageId];
    frame = 0;
    if (!running) return;
    running.text = answer.text;
    running.reasoning = answer.reasoning;
    running.nTokens = answer.nEvents;
    running.lastTextMs = answer.lastTextMs;
    /* After this frame was laid out and painted. */
    setTimeout(() => {
      const took = performance.now() - began;
      busyUntil = performance.now() + Math.min(2 * took, FRAME_WAIT_MAX_MS);
    }, 0);
  };
  const show = () => {
    if (frame) return;
    const later = () => (performance.now() < busyUntil ? (frame = requestAnimationFrame(later)) : draw());
    frame = requestAnimationFrame(later);
  };
  return { show, end: () => cancelAnimationFrame(frame) };
}

const outcomeOf = (end: 'done' | 'stopped' | 'failed', answer: Answer): Outcome =>
  end !== 'done' ? end : answer.finish === 'length' ? 'length' : 'done';

async function run(id: string, message: Message, given?: Conversation): Promise<void> {
  if (aborts.has(message.id)) return;
  const control = new AbortController();
  aborts.set(message.id, control);
  const conversation = given ?? (await latest(id));
  if (!conversation) return void aborts.delete(message.id);
  const answer = answerOf(message);
  chats.running[message.id] = runningOf(id, message);
  reading.set(message.id, answer);
  const screen = screenOf(message.id, answer);
  let storedMs = Date.now();
  const end = await streamAnswer(
    requestBody(conversation, message),
    message.answer!.requestId,
    answer,
    {
      changed() {
        screen.show();
        if (Date.now() - storedMs < STORE_EVERY_MS) return;
        storedMs = Date.now();
        void settle(id, message, messageWith(message, answer, {}));
      },
      status(status) {
        const running = chats.running[message.id];
        if (!running) return;
        if (status.kind !== 'broken') running.brokenMs = null;
        else running.brokenMs ??= Date.now();
        const isNew = running.status.kind !== status.kind || running.status.why !== status.why;
        if (isNew || status.kind === 'broken') running.status = status;
      },
    },
    control.signal,
    browserShell,
  );
  screen.end();
  await finish(id, message, answer, outcomeOf(end, answer));
  delete chats.running[message.id];
  reading.delete(message.id);
  aborts.delete(message.id);
}

async function finish(id: string, message: Message, answer: Answer, outcome: Outcome): Promise<void> {
  const instance = instanceOf(live.view, message.answer!.model);
  const facts: Partial<AnswerFacts> = {
    outcome,
    problem: outcome === 'failed' ? (answer.fault?.text ?? 'the answer broke off') : null,
    made: madeFromPage(answer, message.answer!.askedMs, instance, live.view),
  };
  await settle(id, message, messageWith(message, answer, facts));
  if (answer.completionId) void askWhoMadeIt(id, message, answer, facts);
}

/* The node's own account comes a moment after the end; a node that has none is not asked on. */
async function askWhoMadeIt(
  id: string,
  message: Message,
  answer: Answer,
  facts: Partial<AnswerFacts>,
): Promise<void> {
  for (let attempt = 0; attempt < 4; attempt++) {
    await new Promise((resolve) => setTimeout(resolve, 300 * (attempt + 1)));
    let record: RequestRecord;
    try {
      record = await getJson<RequestRecord>(
        `/api/requests/${encodeURIComponent(answer.completionId!)}`,
      );
    } catch {
      return;
    }
    if (record.outcome === null) continue;
    const made = madeFromRecord(record, live.view);
    if (!made.stages.length && facts.made) made.stages = facts.made.stages;
    made.decodeTokensPerS ??= facts.made?.decodeTokensPerS ?? null;
    return settle(id, message, messageWith(message, answer, { ...facts, made }));
  }
}
