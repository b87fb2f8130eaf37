import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  changeWords,
  contextsOf,
  rangeOf,
  sameSplit,
  startOf,
  totalOf,
  withBoundary,
  type Piece,
} from '../src/models/split.ts';

const split: Piece[] = [
  { node: 'a', device: 'x', n_layers: 46 },
  { node: 'b', device: 'y', n_layers: 28 },
  { node: 'b', device: 'z', n_layers: 6 },
];

test('a boundary moves layers between its two neighbours alone', () => {
  const moved = withBoundary(split, 0, 40);
  assert.deepEqual(
    moved.map((piece) => piece.n_layers),
    [40, 34, 6],
  );
  assert.equal(totalOf(moved), 80);
  assert.equal(startOf(moved, 1), 40);
  assert.ok(!sameSplit(split, moved));
  assert.ok(sameSplit(split, withBoundary(moved, 0, 46)));
});

test('each device keeps a layer, wherever somebody drags to', () => {
  for (const at of [-1e9, -1, 0, 0.4, 1e9, 79.9])
    for (const index of [0, 1]) {
      const moved = withBoundary(split, index, at);
      assert.equal(totalOf(moved), 80);
      assert.ok(moved.every((piece) => piece.n_layers >= 1));
    }
  assert.deepEqual(rangeOf(split, 1), { least: 47, most: 79 });
});

test('contexts double up to what the model was trained for', () => {
  assert.deepEqual(contextsOf(3000, null), [512, 1024, 2048, 3000]);
  assert.ok(contextsOf(8192, 5000).includes(5000));
});

test('a what-if in words', () => {
  assert.equal(changeWords(10, 6), '40 % slower');
  assert.equal(changeWords(10, 12.5), '25 % faster');
  assert.equal(changeWords(10, 10.01), 'as fast');
});
