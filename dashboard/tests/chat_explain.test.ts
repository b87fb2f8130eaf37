import assert from 'node:assert/strict';
import { test } from 'node:test';
import { instanceOf, modelChoices, pauseWords } from '../src/chat/explain.ts';
import { longestStageMs, madeFromPage, madeFromRecord, madeRead, stageBar } from '../src/chat/made.ts';
import { storedTooMany } from '../src/chat/store.ts';
import { answerNew } from '../src/chat/answer.ts';
import type { StreamStatus } from '../src/chat/stream.ts';
import type { Instance, RequestRecord, View } from '../src/lib/types.ts';

const instance = (more: Partial<Instance> = {}): Instance => ({
  model: 'm',
  state: 'ready',
  context: 512,
  streams: 1,
  stages: [{ node: 'n1', device: 'gpu', first_layer: 0, n_layers: 5 }],
  forecast_decode_tokens_per_s: 20,
  ...more,
});
const view = (instances: Instance[], state: 'up' | 'down' = 'up'): View =>
  ({
    time_ms: 0,
    self: 'n1',
    cluster: null,
    nodes: { n1: { name: 'tower', state } },
    links: {},
    models: {},
    instances: Object.fromEntries(instances.map((each, index) => [index, each])),
    alerts: {},
    totals: null,
  }) as View;
const reading: StreamStatus = { kind: 'reading', why: null, retryAtMs: null };

test('nothing is said while all is well', () => {
  assert.equal(pauseWords(view([instance()]), 'm', reading, 100, true, 0), null);
  assert.equal(pauseWords(view([]), 'm', reading, 1000, false, 0), null);
});

test('each reason to wait has its sentence', () => {
  const say = (world: View, status = reading, silentMs = 5000, hasText = true) =>
    pauseWords(world, 'm', status, silentMs, hasText, 10_000) ?? '';
  const paused = instance({ pause: { since_ms: 7000, why: 'tower does not answer' } });
  assert.equal(
    say(view([paused]), reading, 0),
    'Paused for 3 s: tower does not answer. The answer goes on by itself.',
  );
  assert.match(say(view([instance()], 'down')), /^tower does not answer. Its layers go/);
  const broken: StreamStatus = { kind: 'broken', why: 'this node does not answer', retryAtMs: 14_000 };
  assert.match(say(view([instance()]), broken, 0), /this node does not answer. Trying again in 4 s/);
  assert.match(say(view([instance()]), { ...broken, retryAtMs: 9000 }, 0), /Trying again\. The answer/);
  const waiting: StreamStatus = { kind: 'waiting', why: 'waiting for layers', retryAtMs: null };
  assert.equal(say(view([instance()]), waiting), 'The node says: waiting for layers.');
  assert.match(say(view([instance({ state: 'loading' })])), /being loaded/);
  assert.match(say(view([instance({ requests_waiting: 3 })]), reading, 5000, false), /3 requests wait/);
  assert.match(say(view([instance()]), reading, 5000, false), /reads the prompt \(5 s\)/);
  assert.match(say(view([instance()])), /Nothing came for 5 s/);
});

test('models: those that are ready come first, the others say why not', () => {
  const world = view([instance({ state: 'loading' }), instance({ model: 'b' })]);
  assert.deepEqual(modelChoices(['m', 'b', 'c'], world), [
    { name: 'b', note: '', isReady: true },
    { name: 'm', note: 'is being loaded', isReady: false },
    { name: 'c', note: 'is loaded with the first question', isReady: false },
  ]);
  assert.deepEqual(modelChoices(['c'], view([])), [{ name: 'c', note: '', isReady: true }]);
  assert.equal(instanceOf(view([instance({ state: 'failed' }), instance()]), 'm')?.state, 'ready');
});

test('the node’s account of an answer', () => {
  const record = {
    id: 'x',
    model: 'm',
    started_ms: 1000,
    outcome: 'done',
    decode_tokens_per_s: 9,
    forecast_decode_tokens_per_s: 10,
    stages: [
      { node: 'n1', device: 'gpu', first_layer: 0, n_layers: 3, compute_ms: 50, wait_ms: 25, link_ms: 25 },
      { node: 'gone-long-ago', device: 'cpu', first_layer: 3, n_layers: 2, compute_ms: 50, link_ms: null },
    ],
    pauses: [{ at_ms: 1500, ms: 300, why: 'tower does not answer' }],
    joules: null,
  } as RequestRecord;
  const made = madeFromRecord(record, view([]));
  assert.deepEqual(made.stages.map((stage) => stage.where), ['tower gpu', 'gone-lon cpu']);
  assert.deepEqual(made.pauses, [{ atMs: 500, ms: 300, why: 'tower does not answer' }]);
  assert.equal(made.joules, null);
  assert.equal(longestStageMs(made), 100);
  assert.deepEqual(stageBar(made.stages[0]!, 100), [
    { kind: 'compute', from: 0, share: 0.5 },
    { kind: 'link', from: 0.5, share: 0.25 },
    { kind: 'wait', from: 0.75, share: 0.25 },
  ]);
  assert.deepEqual(stageBar(made.stages[1]!, 100), [{ kind: 'compute', from: 0, share: 0.5 }]);
  assert.deepEqual(madeRead(JSON.parse(JSON.stringify(made))), made);
});

test('what the page saw itself, where the node does not tell', () => {
  const answer = { ...answerNew(), nEvents: 11, firstTextMs: 1000, lastTextMs: 2000 };
  const made = madeFromPage(answer, 400, instance(), view([]));
  assert.equal(made.isByNode, false);
  assert.deepEqual([made.decodeTokensPerS, made.forecastDecode, made.ttftMs], [10, 20, 600]);
  assert.equal(madeFromPage(answerNew(), 0, null, view([])).ttftMs, null);
});

test('a hostile account is whole when it is read', () => {
  for (const odd of [null, 7, 'x', []]) assert.equal(madeRead(odd), null);
  const made = madeRead({ stages: [null, 7, { where: {}, nLayers: -1 }], pauses: 'x', joules: Infinity })!;
  assert.deepEqual([made.stages.length, made.stages[0]!.where, made.pauses.length, made.joules], [1, '', 0, null]);
  const many = madeRead({ stages: Array(5000).fill({ where: 'x'.repeat(5000) }) })!;
  assert.deepEqual([many.stages.length, many.stages[0]!.where.length], [256, 300]);
});

test('the store is bounded: those changed longest ago go', () => {
  const all = Array.from({ length: 5 }, (_, i) => ({ id: String(i), title: '', changedMs: (i * 7) % 5 }));
  assert.deepEqual(storedTooMany(all, 5), []);
  assert.deepEqual(storedTooMany(all, 3), ['3', '0']);
});
