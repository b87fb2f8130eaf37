import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addPoint, pointsOf, seriesOf } from '../src/cluster/curve.ts';
import { assignSlots, layoutOf, lineBetween, type Box } from '../src/cluster/layout.ts';
import { pairsInUse, pairsOf } from '../src/cluster/links.ts';
import { segmentsOf } from '../src/cluster/memory.ts';
import { modelColours } from '../src/lib/colours.ts';

const cards = (n: number, devices = 2) =>
  Array.from({ length: n }, (_, i) => ({ id: `n${i}`, devices }));

function overlap(a: Box, b: Box): boolean {
  return a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
}

test('machines never overlap, and lie inside, from a phone to a wall', () => {
  for (const width of [320, 360, 600, 760, 1024, 1600, 3800])
    for (const n of [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 64]) {
      const { boxes, height } = layoutOf(cards(n, 1 + (n % 4)), width);
      assert.equal(boxes.length, n);
      for (const box of boxes) {
        assert.ok(box.x >= 0 && box.x + box.w <= width, `${n} at ${width}: ${JSON.stringify(box)}`);
        assert.ok(box.y >= 0 && box.y + box.h <= height);
        assert.ok(box.w >= 100);
      }
      boxes.forEach((a, i) =>
        boxes.slice(i + 1).forEach((b) => assert.ok(!overlap(a, b), `${n} at ${width}`)),
      );
    }
});

test('a machine keeps its place when others come and go', () => {
  const first = assignSlots({}, ['b', 'a', 'c']);
  assert.deepEqual(first, { b: 0, a: 1, c: 2 });
  const without = assignSlots(first, ['b', 'c']);
  assert.deepEqual(without, { b: 0, c: 2 });
  assert.deepEqual(assignSlots(without, ['b', 'c', 'x']), { b: 0, c: 2, x: 1 });
});

test('a line leaves its machine at the edge', () => {
  const layout = layoutOf(cards(2), 1000);
  const [a, b] = layout.boxes as [Box, Box];
  const [, x] = /^M(\d+)/.exec(lineBetween(a, b, layout).path) ?? [];
  assert.equal(Number(x), a.x + a.w);
});

test('both directions are one line; a pipeline is a ring of links', () => {
  const links = {
    'a>b': { from: 'a', to: 'b', up: true },
    'b>a': { from: 'b', to: 'a', up: true },
    'b>c': { from: 'b', to: 'c', up: false },
  };
  assert.deepEqual(
    pairsOf(links).map((pair) => pair.key),
    ['a>b', 'b>c'],
  );
  const stage = (node: string) => ({ node, device: 'd', first_layer: 0, n_layers: 1 });
  const used = pairsInUse({
    m: {
      model: 'm',
      state: 'ready',
      context: 1,
      streams: 1,
      stages: [stage('a'), stage('b'), stage('b'), stage('c')],
    },
  });
  assert.deepEqual([...used.keys()].sort(), ['a>b', 'a>c', 'b>c']);
});

test('memory: models, others, free; never more than there is', () => {
  const device = { name: 'd', memory_bytes: 100, free_bytes: 10 };
  const shares = segmentsOf(device, [{ model: 'm', bytes: 60 }]).map((one) => one.share);
  assert.deepEqual(shares, [0.6, 0.3]);
  const more = segmentsOf(device, [{ model: 'm', bytes: 160 }]);
  assert.deepEqual(more, [{ model: 'm', bytes: 100, share: 1 }]);
  assert.deepEqual(segmentsOf({ name: 'd', memory_bytes: null, free_bytes: null }, []), []);
});

test('a curve: history, then live, then what is predicted', () => {
  let points = pointsOf({ period_ms: 500, end_ms: 10_000, temperature_c: [40, null, 42] });
  assert.deepEqual(
    points.map((one) => one.time_ms),
    [9000, 9500, 10_000],
  );
  const point = { ...points[0]!, time_ms: 10_500, temperature_c: 43 };
  points = addPoint(points, point);
  assert.equal(addPoint(points, point), points); // the same time again
  const series = seriesOf(points, 'temperature_c', [44, 45]);
  assert.deepEqual(series.x, [-1.5, -1, -0.5, 0, 1, 2]);
  assert.deepEqual(series.y, [40, null, 42, 43, null, null]);
  assert.deepEqual(series.ahead, [null, null, null, 43, 44, 45]);
});

test('models keep their colours and share none of the first eight', () => {
  const names = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];
  const colours = modelColours(names);
  assert.equal(new Set(colours.values()).size, 8);
  assert.equal(modelColours(['a']).get('a'), modelColours(['a', 'zz']).get('a'));
});
