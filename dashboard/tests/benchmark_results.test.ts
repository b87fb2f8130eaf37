import assert from 'node:assert/strict';
import { test } from 'node:test';
import { wattsOf } from '../src/benchmark/measure.ts';
import { RESULTS_MAX, resultsRead } from '../src/benchmark/results.ts';
import type { BenchmarkResult } from '../src/benchmark/runs.ts';
import type { Instance, View } from '../src/lib/types.ts';

const result: BenchmarkResult = {
  promptTokens: 64,
  answerTokens: 32,
  streams: 1,
  model: 'm',
  atMs: 5,
  devices: 'tower gpu',
  forecastDecode: null,
  forecastPrefill: 9,
  runs: [
    {
      prefillTokensPerS: 100,
      decodeTokensPerS: 10,
      totalTokensPerS: 10,
      firstTokenMs: 640,
      watts: null,
      joulesPerToken: null,
      answerTokens: 32,
    },
  ],
};

test('results come back as they were', () => {
  assert.deepEqual(resultsRead(JSON.stringify([result])), [result]);
});

test('what is none is left out, and there is a limit', () => {
  for (const odd of [null, '', '{', '7', '{}', '[null,7,{}]']) assert.deepEqual(resultsRead(odd), []);
  const many = JSON.stringify(Array(RESULTS_MAX + 5).fill(result));
  assert.equal(resultsRead(many).length, RESULTS_MAX);
  const odd = resultsRead(JSON.stringify([{ ...result, runs: [{ watts: 'x', answerTokens: -1 }] }]))[0]!;
  assert.deepEqual([odd.runs[0]!.watts, odd.runs[0]!.answerTokens], [null, 0]);
});

test('watts: of all devices of the instance, each once, or not at all', () => {
  const stage = (node: string, device: string) => ({ node, device, first_layer: 0, n_layers: 1 });
  const instance = { stages: [stage('a', 'gpu'), stage('b', 'gpu'), stage('a', 'gpu')] } as Instance;
  const view = (watts: number | null) =>
    ({ nodes: { a: { devices: { gpu: { power_w: 50 } } }, b: { devices: { gpu: { power_w: watts } } } } }) as unknown as View;
  assert.equal(wattsOf(view(30), instance), 80);
  assert.equal(wattsOf(view(0), instance), 50);
  assert.equal(wattsOf(view(null), instance), null);
  assert.equal(wattsOf(view(30), null), null);
});
