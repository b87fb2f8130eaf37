import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ago, bytes, duration, latency, listed, percent, rate, short } from '../src/lib/format.ts';
import { emptyView } from '../src/lib/live-core.ts';
import type { View } from '../src/lib/types.ts';
import { troubles } from '../src/shell/trouble.ts';

test('numbers as people read them; unknown is not zero', () => {
  assert.equal(bytes(39.6 * 2 ** 30), '40 GiB');
  assert.equal(bytes(1023.9 * 2 ** 20), '1.0 GiB');
  assert.equal(bytes(0), '0 B');
  assert.equal(bytes(null), '–');
  assert.equal(rate(2.1e9), '2.1 GB/s');
  assert.equal(percent(undefined), '–');
  assert.equal(latency(82e3), '82 µs');
  assert.equal(latency(4.3e6), '4.3 ms');
  assert.equal(short(0.421), '0.42');
  assert.equal(short(17.83), '18');
  assert.equal(duration(450), '450 ms');
  assert.equal(duration(62_000), '1 min 2 s');
  assert.equal(ago(null, 5), '–');
  assert.equal(ago(1000, 2000), 'just now');
  assert.equal(listed(['a', 'b', 'c']), 'a, b and c');
});

function viewWith(more: Partial<View>): View {
  return { ...emptyView(), ...more };
}

test('nothing wrong: no band', () => {
  assert.deepEqual(
    troubles(viewWith({ nodes: { a: { name: 'a', state: 'up' } } }), 'live'),
    [],
  );
});

test('a lost node is told once, also when its alert comes', () => {
  const view = viewWith({
    nodes: { a: { name: 'attic', state: 'down' } },
    alerts: {
      x: { kind: 'node_lost', severity: 'warning', raised_ms: 1, text: 'attic has been down' },
    },
  });
  const found = troubles(view, 'live');
  assert.equal(found.length, 1);
  assert.match(found[0]?.text ?? '', /attic is down/);
});

test('the worst comes first, and each says what is done', () => {
  const view = viewWith({
    nodes: { a: { name: 'attic', state: 'silent' } },
    instances: {
      m: {
        model: 'm',
        state: 'ready',
        context: 1,
        streams: 1,
        stages: [],
        pause: { since_ms: 1, why: 'attic was lost' },
      },
    },
  });
  const found = troubles(view, 'waiting');
  assert.equal(found[0]?.id, 'stream');
  assert.ok(found.every((one) => one.doing));
  assert.ok(found.some((one) => one.text.includes('attic was lost')));
});
