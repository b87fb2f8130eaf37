import assert from 'node:assert/strict';
import { test } from 'node:test';
import { samplingDefaults } from '../src/chat/sampling.ts';
import {
  CONVERSATIONS_MAX,
  conversationRead,
  conversationsFromFile,
  conversationsToFile,
} from '../src/chat/transfer.ts';
import { type Conversation, conversationNew, messageAdd } from '../src/chat/tree.ts';

function sample(): Conversation {
  const user = { id: 'u', parent: null, role: 'user' as const, text: 'hi', reasoning: '', createdMs: 5, answer: null };
  const facts = {
    requestId: 'page-1',
    completionId: 'chatcmpl-1',
    lastEventId: '3-0011aabb',
    outcome: 'streaming' as const,
    problem: null,
    model: 'm',
    sampling: samplingDefaults(),
    usage: { prompt_tokens: 1, completion_tokens: 2, cached_tokens: null },
    nEvents: 2,
    firstTextMs: 1,
    lastTextMs: 2,
    askedMs: 0,
    system: 'be kind',
    owner: 'tab',
    made: null,
  };
  const answer = { ...user, id: 'a', parent: 'u', role: 'assistant' as const, text: 'ho', answer: facts };
  return messageAdd(messageAdd({ ...conversationNew('m', 5), system: 'be kind' }, user), answer);
}

const free = () => false;

test('out and in again: the same', () => {
  const all = [sample(), sample()];
  const { conversations, nLeftOut } = conversationsFromFile(conversationsToFile(all), free);
  assert.deepEqual(conversations, all);
  assert.equal(nLeftOut, 0);
});

test('an import never takes the place of a conversation that is here, nor of one in the file', () => {
  const one = sample();
  const file = conversationsToFile([one, one]);
  const { conversations } = conversationsFromFile(file, (id) => id === one.id);
  const ids = new Set(conversations.map((each) => each.id).concat(one.id));
  assert.equal(ids.size, 3);
});

test('files that are none say so', () => {
  for (const text of ['', '{', '[]', 'null', '{"format":"other","conversations":[]}'])
    assert.throws(() => conversationsFromFile(text, free), /Choose/, text);
  const newer = '{"format":"medley-chats","version":2,"conversations":[]}';
  assert.throws(() => conversationsFromFile(newer, free), /newer/);
});

test('too many conversations are left out and counted', () => {
  const conversations = Array(CONVERSATIONS_MAX + 3).fill({ id: 'x', messages: [] });
  const file = JSON.stringify({ format: 'medley-chats', version: 1, conversations });
  const read = conversationsFromFile(file, free);
  assert.equal(read.conversations.length, CONVERSATIONS_MAX);
  assert.equal(read.nLeftOut, 3);
});

test('a hostile conversation is whole when it is read', () => {
  const user = (id: unknown, parent: unknown, more = {}) => ({ id, parent, role: 'user', text: 't', ...more });
  const read = conversationRead({
    id: 'c',
    title: 'x'.repeat(1000),
    system: { toString: 'no' },
    messages: [
      user('a', 'b'), // its parent comes later: a ring
      user('b', 'a'),
      user('c', 'c'),
      user('__proto__', null),
      user('d', null),
      user('d', null), // twice
      user('e', 'd', { role: 'system' }),
      user('f', 'd', { text: 7, role: 'assistant', answer: { requestId: 'a\nb', outcome: 'odd', lastEventId: '1-x' } }),
      user('<img>', null),
      null,
      7,
    ],
    chosen: { '': 'd', d: 'gone', __proto__: 'd' },
  })!;
  assert.deepEqual(read.messages.map((each) => each.id), ['__proto__', 'd', 'f']);
  assert.deepEqual(read.chosen, { '': 'd' });
  assert.equal(read.title.length, 200);
  assert.equal(read.system, '');
  const facts = read.messages[2]!.answer!;
  assert.deepEqual([facts.requestId, facts.outcome, facts.lastEventId], ['', 'stopped', null]);
  for (const odd of [null, 7, [], {}, { id: 'a' }, { id: '../x', messages: [] }])
    assert.equal(conversationRead(odd), null);
});
