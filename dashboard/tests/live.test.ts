import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  BACKOFF_MAX_MS,
  EVENTS_MAX,
  SILENCE_MS,
  backoffMs,
  liveHeard,
  liveLost,
  liveMessage,
  liveTick,
  newLiveState,
} from '../src/lib/live-core.ts';
import { applyPatch } from '../src/lib/patch.ts';

/* Appendix A of RFC 7396, as far as both sides are objects: original, patch, result. */
const RFC_7396: [unknown, unknown, unknown][] = [
  [{ a: 'b' }, { a: 'c' }, { a: 'c' }],
  [{ a: 'b' }, { b: 'c' }, { a: 'b', b: 'c' }],
  [{ a: 'b' }, { a: null }, {}],
  [{ a: 'b', b: 'c' }, { a: null }, { b: 'c' }],
  [{ a: ['b'] }, { a: 'c' }, { a: 'c' }],
  [{ a: 'c' }, { a: ['b'] }, { a: ['b'] }],
  [{ a: { b: 'c' } }, { a: { b: 'd', c: null } }, { a: { b: 'd' } }],
  [{ a: [{ b: 'c' }] }, { a: [1] }, { a: [1] }],
  [{ e: null }, { a: 1 }, { e: null, a: 1 }],
  [{}, { a: { bb: { ccc: null } } }, { a: { bb: {} } }],
];

test('patches are those of RFC 7396', () => {
  for (const [original, patch, result] of RFC_7396) {
    const target = structuredClone(original) as Record<string, unknown>;
    applyPatch(target, patch as Record<string, unknown>);
    assert.deepEqual(target, result);
  }
});

test('a patch does not reach prototypes', () => {
  applyPatch({}, JSON.parse('{"__proto__":{"tainted":1},"constructor":{"prototype":{"tainted":1}}}'));
  assert.equal(({} as Record<string, unknown>).tainted, undefined);
});

test('a patch leaves untouched objects as they are', () => {
  const target = { a: { x: 1 }, b: { x: 1 } };
  const { a } = target;
  applyPatch(target, { b: { x: 2 } });
  assert.equal(target.a, a);
});

test('snapshot, change, event', () => {
  const state = newLiveState();
  liveMessage(state, 'change', '{"self":"early"}');
  assert.equal(state.view.self, '');
  liveMessage(state, 'snapshot', '{"time_ms":5,"self":"a","nodes":{"a":{"name":"one"}}}');
  assert.equal(state.phase, 'live');
  assert.deepEqual(state.view.links, {}); // what was not sent is empty, not missing
  liveMessage(state, 'change', '{"nodes":{"a":{"name":"two"}},"alerts":null}');
  assert.equal(state.view.nodes.a?.name, 'two');
  liveMessage(state, 'event', '{"index":4,"time_ms":1,"text":"x"}');
  liveMessage(state, 'event', '{"index":4,"time_ms":1,"text":"again, after a reconnect"}');
  assert.deepEqual(
    state.events.map((event) => event.text),
    ['x'],
  );
});

test('events are bounded', () => {
  const state = newLiveState();
  for (let index = 1; index <= EVENTS_MAX + 50; index++)
    liveMessage(state, 'event', JSON.stringify({ index, time_ms: 1, text: 'x' }));
  assert.equal(state.events.length, EVENTS_MAX);
  assert.equal(state.events.at(-1)?.index, EVENTS_MAX + 50);
});

test('silence is shown, then given up; a sign of life ends it', () => {
  const state = newLiveState();
  liveHeard(state, 0);
  liveMessage(state, 'snapshot', '{}');
  assert.equal(liveTick(state, SILENCE_MS), 'nothing');
  assert.equal(state.phase, 'live');
  liveTick(state, SILENCE_MS + 1);
  assert.equal(state.phase, 'stale');
  liveHeard(state, SILENCE_MS + 2);
  assert.equal(state.phase, 'live');
  assert.equal(liveTick(state, 3 * SILENCE_MS + 10), 'drop');
});

test('a connection that never answers is dropped, too', () => {
  const state = newLiveState();
  liveHeard(state, 0);
  assert.equal(liveTick(state, 2 * SILENCE_MS + 1), 'drop');
});

test('it comes back later and later, and at once after a success', () => {
  const state = newLiveState();
  let now = 0;
  const waits: number[] = [];
  for (let i = 0; i < 8; i++) {
    liveLost(state, now, 0);
    waits.push(state.retry_at - now);
    assert.equal(liveTick(state, state.retry_at - 1), 'nothing');
    now = state.retry_at;
    assert.equal(liveTick(state, now), 'connect');
  }
  assert.deepEqual(waits, [...waits].sort((a, b) => a - b));
  assert.equal(waits.at(-1), BACKOFF_MAX_MS);
  liveMessage(state, 'snapshot', '{}');
  liveLost(state, now, 0);
  assert.equal(state.retry_at - now, waits[0]);
  assert.ok(backoffMs(99, 1) <= BACKOFF_MAX_MS);
});
