import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type Break,
  RESUME_FOR_MS,
  afterBreak,
  answerNew,
  answerTake,
  answerTokensPerSecond,
  faultFromJson,
} from '../src/chat/answer.ts';

const chunk = (content: string, id: string, more = {}) => ({
  kind: 'event' as const,
  id,
  event: 'message',
  data: JSON.stringify({
    id: 'chatcmpl-1',
    choices: [{ index: 0, delta: { content }, finish_reason: null, ...more }],
  }),
});

test('text, thoughts, position, reason, usage and the end', () => {
  const answer = answerNew();
  answerTake(answer, { kind: 'comment', text: 'waiting for layers' }, 10);
  assert.equal(answer.waitingFor, 'waiting for layers');
  answerTake(answer, chunk('Once', '1-a'), 100);
  answerTake(answer, chunk(' upon', '2-b'), 200);
  answerTake(answer, chunk('', '3-c', { delta: { reasoning_content: 'hm' } }), 300);
  answerTake(answer, chunk('', '4-d', { finish_reason: 'length' }), 350);
  const usage = { prompt_tokens: 7, completion_tokens: 3, prompt_tokens_details: { cached_tokens: 2 } };
  answerTake(
    answer,
    { kind: 'event', id: '4-d', event: 'message', data: JSON.stringify({ choices: [], usage }) },
    360,
  );
  answerTake(answer, { kind: 'event', id: '', event: 'message', data: '[DONE]' }, 361);
  assert.deepEqual(answer, {
    completionId: 'chatcmpl-1',
    text: 'Once upon',
    reasoning: 'hm',
    lastEventId: '4-d',
    nEvents: 3,
    finish: 'length',
    usage: { prompt_tokens: 7, completion_tokens: 3, cached_tokens: 2 },
    isDone: true,
    fault: null,
    waitingFor: null,
    firstTextMs: 100,
    lastTextMs: 300,
  });
  assert.equal(answerTokensPerSecond(answer), 10);
});

test('a speed needs two tokens and time between them', () => {
  const answer = answerNew();
  assert.equal(answerTokensPerSecond(answer), null);
  answerTake(answer, chunk('a', '1'), 5);
  assert.equal(answerTokensPerSecond(answer), null);
  answerTake(answer, chunk('b', '2'), 5);
  assert.equal(answerTokensPerSecond(answer), null);
});

test('an error in mid-stream keeps text and position', () => {
  const answer = answerNew();
  answerTake(answer, chunk('Once', '1-a'), 100);
  const error = { message: 'differs', code: 'answer_differs', type: 'x', param: null };
  const data = JSON.stringify({ error });
  answerTake(answer, { kind: 'event', id: '', event: 'message', data }, 110);
  assert.deepEqual(answer.fault, { status: 0, code: 'answer_differs', text: 'differs' });
  assert.deepEqual([answer.text, answer.lastEventId], ['Once', '1-a']);
});

test('hostile chunks change nothing and throw nothing', () => {
  for (const data of ['', 'null', '[]', '7', '{', '"x"']) {
    const answer = answerNew();
    answerTake(answer, { kind: 'event', id: '1', event: 'message', data }, 1);
    assert.equal(answer.fault?.code, 'malformed', data);
    assert.equal(answer.lastEventId, null);
  }
  for (const data of [
    '{}',
    '{"choices":7}',
    '{"choices":[null]}',
    '{"choices":[{"delta":{"content":{}}}]}',
    '{"choices":[{"delta":[]}],"usage":{"prompt_tokens":-1,"completion_tokens":"x"}}',
  ]) {
    const answer = answerNew();
    answerTake(answer, { kind: 'event', id: '', event: 'message', data }, 1);
    assert.deepEqual([answer.text, answer.usage, answer.fault], ['', null, null], data);
  }
});

test('errors of both shapes, and of none', () => {
  assert.equal(faultFromJson(404, { error: { text: 'a', message: 'b' } }).text, 'a');
  assert.equal(faultFromJson(404, { error: { message: 'b' } }).text, 'b');
  for (const odd of [null, 7, [], {}, { error: 'x' }])
    assert.match(faultFromJson(500, odd).text, /status 500/);
});

const refused = (status: number, code: string | null = null): Break => ({
  kind: 'refused',
  fault: { status, code, text: 'no' },
  retryAfterMs: null,
});

test('what is worth another try', () => {
  const kinds = (what: Break, hasBegun: boolean, attempt = 0) =>
    afterBreak(what, attempt, 0, hasBegun).kind;
  for (const what of [{ kind: 'network' }, { kind: 'ended' }, { kind: 'silent' }] as Break[]) {
    assert.equal(kinds(what, false), 'retry');
    assert.equal(kinds(what, true, 100), 'retry');
  }
  for (const status of [429, 500, 502, 503, 504]) assert.equal(kinds(refused(status), false), 'retry');
  for (const status of [400, 401, 403, 409, 413]) assert.equal(kinds(refused(status), true), 'fail');
  assert.equal(kinds(refused(404), false), 'fail');
  assert.equal(kinds(refused(404), true), 'retry', 'the node may just have started');
  const error = (code: string | null): Break => ({
    kind: 'error',
    fault: { status: 0, code, text: 'broke' },
  });
  assert.equal(kinds(error('cancelled'), true), 'retry');
  assert.equal(kinds(error('answer_differs'), true), 'fail');
  assert.equal(kinds(error(null), true, 3), 'fail');
});

test('waits grow, stay short, and keep to Retry-After', () => {
  const waits = Array.from({ length: 20 }, (_, attempt) => {
    const next = afterBreak({ kind: 'network' }, attempt, 0, true);
    return next.kind === 'retry' ? next.inMs : -1;
  });
  for (let i = 1; i < waits.length; i++) assert.ok(waits[i]! >= waits[i - 1]!);
  assert.ok(waits[0]! >= 250 && waits.at(-1)! <= 5000, String(waits));
  const next = afterBreak({ ...refused(503), retryAfterMs: 7000 } as Break, 0, 0, false);
  assert.equal(next.kind === 'retry' && next.inMs, 7000);
});

test('it gives up, and says what to do', () => {
  const next = afterBreak({ kind: 'network' }, 50, RESUME_FOR_MS + 1, true);
  assert.equal(next.kind, 'fail');
  assert.match(next.kind === 'fail' ? next.fault.text : '', /Start it again/);
});
