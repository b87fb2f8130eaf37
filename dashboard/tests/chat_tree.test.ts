import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  SAMPLING_ROWS,
  samplingDefaults,
  samplingFields,
  samplingProblem,
  samplingRead,
  stopProblem,
} from '../src/chat/sampling.ts';
import {
  type Conversation,
  type Message,
  MESSAGES_MAX,
  branchRemove,
  branchStep,
  conversationNew,
  messageAdd,
  messageChange,
  messagesForApi,
  pathOf,
  pathTo,
  titleOf,
} from '../src/chat/tree.ts';

const message = (id: string, parent: string | null, text = id): Message => ({
  id,
  parent,
  role: id.startsWith('u') ? 'user' : 'assistant',
  text,
  reasoning: '',
  createdMs: 1,
  answer: null,
});
const build = (...messages: Message[]): Conversation =>
  messages.reduce(messageAdd, conversationNew('m', 0));
const ids = (messages: Message[]): string[] => messages.map((each) => each.id);

/* u1 ─ a1 ─ u2 ─ a2
 *        └ u3 ─ a3
 *    └ a4 */
const forked = (): Conversation =>
  build(
    message('u1', null),
    message('a1', 'u1'),
    message('u2', 'a1'),
    message('a2', 'u2'),
    message('u3', 'a1'),
    message('a3', 'u3'),
    message('a4', 'u1'),
  );

test('the newest branch is shown, and what was chosen', () => {
  const all = forked();
  assert.deepEqual(ids(pathOf(all)), ['u1', 'a4']);
  const back = branchStep(all, 'a4', -1);
  assert.deepEqual(ids(pathOf(back)), ['u1', 'a1', 'u3', 'a3']);
  assert.deepEqual(ids(pathOf(branchStep(back, 'u3', 1))), ['u1', 'a1', 'u2', 'a2'], 'round');
  assert.deepEqual(ids(pathTo(all, 'a2')), ['u1', 'a1', 'u2', 'a2'], 'whatever is chosen');
  assert.deepEqual(branchStep(all, 'nobody', 1), all);
});

test('a removed branch takes what follows it, and nothing else', () => {
  const all = branchStep(forked(), 'a4', -1);
  const rest = branchRemove(all, 'u3');
  assert.deepEqual(ids(rest.messages), ['u1', 'a1', 'u2', 'a2', 'a4']);
  assert.deepEqual(ids(pathOf(rest)), ['u1', 'a1', 'u2', 'a2']);
  assert.deepEqual(ids(pathOf(branchRemove(all, 'u1'))), []);
});

test('a change copies: what was shown before is as it was', () => {
  const before = forked();
  const after = messageChange(before, 'a1', { text: 'new' });
  assert.equal(before.messages[1]!.text, 'a1');
  assert.equal(after.messages[1]!.text, 'new');
});

test('there is a limit, and the text says what to do', () => {
  const all = conversationNew('m', 0);
  all.messages = Array.from({ length: MESSAGES_MAX }, (_, i) => message(`u${i}`, null));
  assert.throws(() => messageAdd(all, message('ux', null)), /Begin a new one/);
});

test('titles', () => {
  assert.equal(titleOf(conversationNew('m', 0)), 'New chat');
  assert.equal(titleOf(build(message('u1', null, '  a \n b '))), 'a b');
  assert.equal(Array.from(titleOf(build(message('u1', null, '🙂'.repeat(90))))).length, 60);
  assert.equal(titleOf({ ...build(message('u1', null)), title: 'mine' }), 'mine');
});

test('what the API is asked with', () => {
  const all = { ...forked(), system: '  be kind ' };
  const texts = messagesForApi(all, 'u2', (each) => (each.id === 'a1' ? 'short' : ''));
  assert.deepEqual(texts, [
    { role: 'system', content: 'be kind' },
    { role: 'user', content: 'u1' },
    { role: 'assistant', content: 'short' },
    { role: 'user', content: 'u2' },
  ]);
});

test('sampling: defaults are good, edges are taken, beyond is refused', () => {
  for (const row of SAMPLING_ROWS) {
    assert.equal(samplingProblem(row, row.usual), null, row.field);
    assert.equal(samplingProblem(row, row.lowest), null, row.field);
    assert.equal(samplingProblem(row, row.highest), null, row.field);
    for (const odd of [row.lowest - 1, row.highest + 1, Number.NaN, Infinity])
      assert.notEqual(samplingProblem(row, odd), null, `${row.field} ${odd}`);
    assert.equal(samplingProblem(row, null) === null, row.empty !== '', row.field);
    if (row.isWhole) assert.notEqual(samplingProblem(row, row.lowest + 0.5), null);
  }
  assert.notEqual(stopProblem(['ü'.repeat(257)]), null);
  assert.equal(stopProblem(['ü'.repeat(256)]), null);
  assert.notEqual(stopProblem(Array(17).fill('x')), null);
});

test('sampling from anywhere', () => {
  for (const odd of [null, 7, 'x', [], { temperature: 'hot', top_k: 1.5, stop: [7] }])
    assert.deepEqual(samplingRead(odd), samplingDefaults());
  const given = { ...samplingDefaults(), temperature: 0, seed: 7, stop: ['END'] };
  assert.deepEqual(samplingRead(JSON.parse(JSON.stringify(given))), given);
  assert.deepEqual(samplingFields(given), {
    temperature: 0,
    top_p: 0.95,
    top_k: 40,
    min_p: 0.05,
    seed: 7,
    stop: ['END'],
  });
});
