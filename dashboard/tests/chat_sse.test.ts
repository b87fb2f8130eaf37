import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SSE_LINE_MAX, type SseItem, SseParser } from '../src/chat/sse.ts';

const parse = (...pieces: string[]): SseItem[] => {
  const parser = new SseParser();
  return pieces.flatMap((piece) => parser.push(piece));
};
const event = (data: string, id = '', name = 'message'): SseItem => ({
  kind: 'event',
  id,
  event: name,
  data,
});

const STREAM =
  '\uFEFF: waiting for the model\r\n\r\nid: 1-aa\r\ndata: one\r\n\r\n' +
  'id: 2-bb\ndata: two\ndata:  more\nevent: odd\n\n:\rdata: drei ü 🙂\r\rid\ndata\n\n' +
  'retry: 5\nunknown: x\n\nid: 9\n\ndata: last\n\n';
const ITEMS: SseItem[] = [
  { kind: 'comment', text: 'waiting for the model' },
  event('one', '1-aa'),
  event('two\n more', '2-bb', 'odd'),
  { kind: 'comment', text: '' },
  event('drei ü 🙂', '2-bb'),
  event('', ''),
  event('last', '9'),
];

test('all kinds of lines and ends of lines', () => {
  assert.deepEqual(parse(STREAM), ITEMS);
});

test('cut into two anywhere, and into single letters', () => {
  for (let at = 0; at <= STREAM.length; at++)
    assert.deepEqual(parse(STREAM.slice(0, at), STREAM.slice(at)), ITEMS, `cut at ${at}`);
  assert.deepEqual(parse(...STREAM.split('')), ITEMS);
});

test('an event that was not ended is not given', () => {
  assert.deepEqual(parse('id: 3\ndata: half'), []);
  assert.deepEqual(parse('id: 3\ndata: half\n'), []);
});

test('an id with NUL is not taken', () => {
  assert.deepEqual(parse('id: 1\ndata: a\n\nid: 2\0\ndata: b\n\n'), [
    event('a', '1'),
    event('b', '1'),
  ]);
});

test('a line, or an event of many lines, that never ends is refused', () => {
  const parser = new SseParser();
  parser.push('x'.repeat(SSE_LINE_MAX));
  assert.throws(() => parser.push('x'), RangeError);
  const lines = new SseParser();
  const line = `data: ${'y'.repeat(SSE_LINE_MAX / 4)}\n`;
  assert.throws(() => {
    for (let i = 0; i < 5; i++) lines.push(line);
  }, RangeError);
});
