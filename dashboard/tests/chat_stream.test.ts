import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answerNew } from '../src/chat/answer.ts';
import { type StreamShell, type StreamStatus, requestIdNew, streamAnswer } from '../src/chat/stream.ts';

const WORDS = ['Once', ' upon', ' a', ' time', ' ü🙂', ' end'];
const encoder = new TextEncoder();

interface Asked {
  id: string | null;
  last: string | null;
  body: Record<string, unknown>;
}

/* A node: gives the words from the position asked for, and breaks off as told. */
function nodeOf(breaks: (number | 'refuse' | 'network' | 'error' | 'cut')[], pieceBytes = 5) {
  const asked: Asked[] = [];
  const fetchOf = (async (_url: string, init: RequestInit) => {
    const headers = new Headers(init.headers);
    const last = headers.get('last-event-id');
    asked.push({ id: headers.get('x-request-id'), last, body: JSON.parse(String(init.body)) });
    const what = breaks.shift();
    if (what === 'network') throw new TypeError('failed to fetch');
    if (what === 'refuse')
      return new Response('{"error":{"message":"busy","code":"queue_full"}}', { status: 429 });
    const from = last ? Number(last.split('-')[0]) : 0;
    const to = typeof what === 'number' ? what : WORDS.length;
    let text = ': it waits\n\n';
    for (let i = from; i < to; i++)
      text += `id: ${i + 1}-c\ndata: ${JSON.stringify({ id: 'x', choices: [{ delta: { content: WORDS[i] } }] })}\n\n`;
    if (what === 'error') text += 'data: {"error":{"message":"stopping","code":"cancelled"}}\n\n';
    if (what === undefined) text += 'data: [DONE]\n\n';
    if (what === 'cut') text += 'id: 99\ndata: {"choices":[{"delta":{"cont';
    const bytes = encoder.encode(text);
    let at = 0;
    return new Response(
      new ReadableStream({
        pull(controller) {
          if (at >= bytes.length) return controller.close();
          controller.enqueue(bytes.slice(at, (at += pieceBytes)));
        },
      }),
    );
  }) as unknown as typeof fetch;
  const slept: number[] = [];
  let now = 0;
  const shell: StreamShell = {
    fetch: fetchOf,
    now: () => ++now,
    sleep: async (ms) => void slept.push(ms),
  };
  return { shell, asked, slept };
}

const quiet = { changed() {}, status() {} };

test('an undisturbed stream, cut into pieces of any size', async () => {
  for (const size of [1, 2, 3, 7, 1000]) {
    const { shell, asked } = nodeOf([], size);
    const answer = answerNew();
    const end = await streamAnswer({ model: 'm' }, 'r', answer, quiet, new AbortController().signal, shell);
    assert.equal(end, 'done');
    assert.equal(answer.text, WORDS.join(''));
    assert.equal(asked.length, 1);
    assert.deepEqual(asked[0]!.body, { model: 'm', stream: true, stream_options: { include_usage: true } });
  }
});

test('broken again and again, the text is whole and the id the same', async () => {
  const { shell, asked } = nodeOf([2, 'network', 'network', 'refuse', 4, 'cut', 'error']);
  const answer = answerNew();
  const said: StreamStatus[] = [];
  const hooks = { changed() {}, status: (status: StreamStatus) => void said.push(status) };
  const end = await streamAnswer({}, 'req-1', answer, hooks, new AbortController().signal, shell);
  assert.equal(end, 'done');
  assert.equal(answer.text, WORDS.join(''));
  assert.equal(answer.fault, null);
  assert.deepEqual(asked.map((each) => each.id), Array(8).fill('req-1'));
  assert.deepEqual(asked.map((each) => each.last), [null, '2-c', '2-c', '2-c', '2-c', '4-c', '6-c', '6-c']);
  assert.ok(said.some((each) => each.kind === 'broken' && each.why === 'this node does not answer'));
  assert.ok(said.some((each) => each.kind === 'waiting' && each.why === 'it waits'));
});

test('goes on from a text that is here', async () => {
  const { shell, asked } = nodeOf([]);
  const answer = { ...answerNew(), text: 'Once upon', lastEventId: '2-c' };
  await streamAnswer({}, 'r', answer, quiet, new AbortController().signal, shell);
  assert.equal(answer.text, WORDS.join(''));
  assert.equal(asked[0]!.last, '2-c');
});

test('stopped: while it reads, and while it waits to try again', async () => {
  const control = new AbortController();
  const { shell } = nodeOf([]);
  const hooks = { changed: () => control.abort(), status() {} };
  const stuck: StreamShell = {
    ...shell,
    fetch: ((_url: string, init: RequestInit) =>
      new Promise((_resolve, reject) => {
        init.signal!.addEventListener('abort', () => reject(new DOMException('no', 'AbortError')));
        setTimeout(() => control.abort(), 1);
      })) as unknown as typeof fetch,
  };
  assert.equal(await streamAnswer({}, 'r', answerNew(), hooks, control.signal, stuck), 'stopped');
  const second = new AbortController();
  const waiting = nodeOf(['network']).shell;
  waiting.sleep = async () => second.abort();
  assert.equal(await streamAnswer({}, 'r', answerNew(), quiet, second.signal, waiting), 'stopped');
});

test('a refusal that is final is told at once', async () => {
  const shell: StreamShell = {
    fetch: (async () =>
      new Response('{"error":{"message":"no such model"}}', { status: 404 })) as unknown as typeof fetch,
    now: () => 0,
    sleep: async () => assert.fail('it should not wait'),
  };
  const answer = answerNew();
  assert.equal(await streamAnswer({}, 'r', answer, quiet, new AbortController().signal, shell), 'failed');
  assert.deepEqual(answer.fault, { status: 404, code: null, text: 'no such model' });
});

test('ids are what x-request-id takes, and differ', () => {
  const ids = new Set(Array.from({ length: 100 }, requestIdNew));
  assert.equal(ids.size, 100);
  for (const id of ids) assert.match(id, /^[A-Za-z0-9_.:+/=~@-]{1,128}$/);
});
