import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { CARRY_BYTES_MAX, CARRY_LETTERS_MAX, carryRead, carryWrite, otherPages } from '../src/chat/carry.ts';
import { conversationNew, messageAdd } from '../src/chat/tree.ts';
import type { View } from '../src/lib/types.ts';

const message = (id: string, text: string) => ({
  id,
  parent: null,
  role: 'user' as const,
  text,
  reasoning: '',
  createdMs: 1,
  answer: null,
});
const base64url = (bytes: Buffer): string => bytes.toString('base64url');

test('there and back: the branch that is shown', async () => {
  const both = messageAdd(messageAdd(conversationNew('m', 1), message('a', 'one')), message('b', 'zwei ü 🙂'));
  const letters = (await carryWrite(both))!;
  assert.match(letters, /^[A-Za-z0-9_-]+$/);
  const back = (await carryRead(letters))!;
  assert.equal(back.id, both.id);
  assert.deepEqual(back.messages.map((each) => each.text), ['zwei ü 🙂']);
});

test('too long for a link', async () => {
  const noise = Array.from({ length: 700_000 }, () => String.fromCharCode(33 + Math.random() * 90)).join('');
  assert.equal(await carryWrite(messageAdd(conversationNew('m', 1), message('a', noise))), null);
});

test('hostile links give nothing', async () => {
  const bomb = base64url(gzipSync(Buffer.alloc(CARRY_BYTES_MAX + 1, ' ')));
  assert.ok(bomb.length < CARRY_LETTERS_MAX);
  for (const odd of ['', 'x', '%', '../..', 'A'.repeat(CARRY_LETTERS_MAX + 1), bomb, base64url(gzipSync('7')), base64url(gzipSync('{"id":"../x","messages":[]}')), base64url(Buffer.from('no gzip'))])
    assert.equal(await carryRead(odd), null, odd.slice(0, 30));
});

test('where the other pages are', () => {
  const view = {
    self: 'a',
    nodes: {
      a: { name: 'here', state: 'up', addresses: ['192.168.1.2:7979'] },
      b: { name: 'tower', state: 'up', addresses: ['127.0.0.1:7979', '169.254.1.1:7979', '192.168.1.3:7979'] },
      c: { name: 'gone', state: 'down', addresses: ['192.168.1.4:7979'] },
      d: { name: 'six', state: 'up', addresses: ['[fe80::1]:7979', '[fd00::5]:7979'] },
      e: { name: 'odd', state: 'up', addresses: ['javascript:alert(1)', 'x/y:1@z', ''] },
      f: { name: 'none', state: 'up' },
    },
  } as unknown as View;
  assert.deepEqual(otherPages(view, { protocol: 'https:', hostname: '192.168.1.2', port: '8080' }), [
    { name: 'tower', origin: 'https://192.168.1.3:8080' },
    { name: 'six', origin: 'https://[fd00::5]:8080' },
  ]);
  assert.deepEqual(otherPages(view, { protocol: 'http:', hostname: '127.0.0.1', port: '' }), []);
});
