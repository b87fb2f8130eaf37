import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type BenchmarkResult,
  casesOf,
  choiceProblem,
  numbersRead,
  promptOf,
  resultsToCsv,
  runMeasure,
  scheduleOf,
  spreadOf,
} from '../src/benchmark/runs.ts';

const choice = { promptTokens: [64, 512], answerTokens: [32], streams: [1, 2], repeats: 3 };

test('numbers as people write them', () => {
  assert.deepEqual(numbersRead('512, 64 64;8', 'Prompt', 1000), [8, 64, 512]);
  for (const odd of ['', ' , ', '0', '-1', '1.5', 'x', '1001', '1e9'])
    assert.throws(() => numbersRead(odd, 'Prompt', 1000), /Prompt: write/, odd);
});

test('all cases once, then all again', () => {
  assert.equal(casesOf(choice).length, 4);
  const schedule = scheduleOf(choice);
  assert.equal(schedule.length, 12);
  assert.deepEqual(schedule.slice(0, 4), schedule.slice(4, 8));
});

test('what cannot be run is told before', () => {
  assert.equal(choiceProblem(choice, 1024, 2), null);
  assert.equal(choiceProblem(choice, null, null), null);
  assert.match(choiceProblem(choice, 500, 2)!, /context is 500/);
  assert.match(choiceProblem(choice, 1024, 1)!, /1 streams/);
  assert.match(choiceProblem({ ...choice, repeats: 0 }, null, null)!, /1 to 20/);
  const many = Array.from({ length: 28 }, (_, i) => i + 1);
  assert.match(choiceProblem({ ...choice, streams: many }, null, null)!, /at most 27/);
});

const stream = (askedMs: number, firstTextMs: number, lastTextMs: number) => ({
  promptTokens: 100,
  answerTokens: 11,
  askedMs,
  firstTextMs,
  lastTextMs,
});

test('speeds of one stream and of two', () => {
  const one = runMeasure([stream(0, 1000, 2000)], [50, 70]);
  assert.deepEqual(one, {
    prefillTokensPerS: 100,
    decodeTokensPerS: 10,
    totalTokensPerS: 10,
    firstTokenMs: 1000,
    watts: 60,
    joulesPerToken: 120 / 11,
    answerTokens: 11,
  });
  const two = runMeasure([stream(0, 1000, 2000), stream(0, 1000, 3000)], []);
  assert.equal(two.decodeTokensPerS, 7.5);
  assert.equal(two.totalTokensPerS, 10);
  assert.deepEqual([two.watts, two.joulesPerToken], [null, null]);
});

test('what cannot be told is null', () => {
  const short = runMeasure([{ ...stream(0, 5, 5), answerTokens: 1 }], []);
  assert.equal(short.decodeTokensPerS, null);
  assert.equal(short.totalTokensPerS, null);
  assert.equal(spreadOf([null, null]), null);
});

test('median and spread', () => {
  assert.deepEqual(spreadOf([5, null, 1, 3]), { median: 3, lowest: 1, highest: 5, n: 3 });
  assert.equal(spreadOf([4, 1, 2, 3])!.median, 2.5);
});

test('prompts have the length asked for and differ', () => {
  const tokens = Array.from({ length: 97 }, (_, i) => i);
  const prompts = Array.from({ length: 20 }, (_, salt) => promptOf(tokens, 300, salt));
  for (const prompt of prompts) assert.equal(prompt.length, 300);
  assert.equal(new Set(prompts.map((each) => each.slice(0, 3).join())).size, 20);
  assert.throws(() => promptOf([], 3, 0), /no tokens/);
});

test('a table for spreadsheets in which nothing is a formula', () => {
  const result: BenchmarkResult = {
    promptTokens: 64,
    answerTokens: 32,
    streams: 1,
    model: '=cmd("x")',
    atMs: 0,
    devices: 'a/gpu, b',
    forecastDecode: null,
    forecastPrefill: 9,
    runs: [runMeasure([stream(0, 1000, 2000)], [])],
  };
  const [head, line, end] = resultsToCsv([result]).split('\r\n');
  assert.equal(head!.split(',').length, 15);
  assert.equal(
    line,
    '1970-01-01T00:00:00.000Z,"\'=cmd(""x"")","a/gpu, b",64,32,1,11,100,10,10,1000,,,9,',
  );
  assert.equal(end, '');
});
