import assert from 'node:assert/strict';
import { test } from 'node:test';
import { lanesOf, phasesOf, wholeMs } from '../src/activity/timeline.ts';
import { passAddress, qrOf } from '../src/join/qr.ts';
import type { RequestRecord } from '../src/lib/types.ts';

const request: RequestRecord = {
  id: 'x',
  model: 'm',
  started_ms: 1,
  outcome: 'done',
  queue_ms: 100,
  ttft_ms: 300,
  total_ms: 1000,
  stages: [
    { node: 'a', device: 'd', first_layer: 0, n_layers: 2, compute_ms: 400, wait_ms: 500 },
    { node: 'b', device: 'd', first_layer: 2, n_layers: 2, compute_ms: 100, link_ms: null },
  ],
  pauses: [{ at_ms: 901, ms: 500, why: 'a was lost' }],
};

test('phases cover the whole, and nothing goes beyond it', () => {
  const phases = phasesOf(request);
  assert.deepEqual(
    phases.map((phase) => [phase.kind, phase.ms]),
    [
      ['queue', 100],
      ['prompt', 200],
      ['answer', 700],
      ['pause', 100],
    ],
  );
  assert.ok(phases.every((phase) => phase.from + phase.share <= 1 + 1e-9));
});

test('lanes show what was measured alone', () => {
  const lanes = lanesOf(request);
  assert.deepEqual(
    lanes.map((lane) => lane.parts.map((part) => part.kind)),
    [['compute', 'wait'], ['compute']],
  );
});

test('a request without any time is drawn, too', () => {
  const bare: RequestRecord = { id: 'y', model: 'm', started_ms: 1, outcome: null };
  assert.equal(wholeMs(bare), 1);
  assert.deepEqual(lanesOf(bare), []);
  assert.equal(phasesOf(bare).length, 1);
});

test('a QR code has its quiet zone, and a pass its address', () => {
  const { size, path } = qrOf('http://192.168.1.20:8080/#/join?pass=abc');
  assert.ok(size >= 21 + 8);
  assert.ok(path.startsWith('M4 4h7v1h-7z')); // the corner's upper edge, behind four modules
  assert.equal(
    passAddress('http://a:1/', 'x y', 'http://b'),
    'http://a:1/#/join?pass=x%20y',
  );
  assert.equal(passAddress(null, 'x', 'http://b'), 'http://b/#/join?pass=x');
});
