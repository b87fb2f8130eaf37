// The view Chat against real nodes: asking, stopping, branching, reloading, and a machine killed in
// mid-answer. Greedy or not, the text of an answer follows from its id: what the page shows is
// compared with the whole answer that the API gives for the same id.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { World, accessibility, model, waitFor } from './world.mjs';

const FIELD = 'textarea[aria-label="Your question"]';
const DEVICE = { memory: '64MiB', decode: '120MB/s', flops: '4GFLOP/s' };
const world = new World();
let laptop;

before(async () => {
  await world.open();
  laptop = await world.node('laptop', '--new', '--model', model, '--sim', await world.sim('card', DEVICE));
});
after(() => world.close());

async function openChat(node, options = {}) {
  const page = await world.page(node, { view: 'chat', ...options });
  await page.waitForSelector(FIELD);
  await waitFor('a model to choose', async () => (await page.getByLabel('Model', { exact: true }).count()) > 0);
  return page;
}

async function ask(page, text) {
  await page.fill(FIELD, text);
  await page.keyboard.press('Enter');
}

const answers = (page) => page.locator('article.assistant');
const hasText = (page, n = 1) =>
  page.waitForFunction((least) => (document.querySelector('article.assistant:last-of-type .md')?.textContent ?? '').length >= least, n);
const settled = (page, outcomes = ['done', 'length'], ms = 90_000) =>
  page.waitForFunction(
    (wanted) => [...document.querySelectorAll('article.assistant')].every((each) => wanted.includes(each.dataset.outcome)),
    outcomes,
    { timeout: ms },
  );

/* The conversations in the page's store. */
const stored = (page) =>
  page.evaluate(
    () =>
      new Promise((resolve, reject) => {
        const open = indexedDB.open('medley-chat');
        open.onerror = () => reject(open.error);
        open.onsuccess = () => {
          const all = open.result.transaction('conversations').objectStore('conversations').getAll();
          all.onsuccess = () => resolve(all.result);
        };
      }),
  );

/* The last answer in the store, once it is settled. */
async function lastAnswer(page) {
  const all = await waitFor('the store has the answer', async () => {
    const conversations = await stored(page);
    const message = conversations.at(-1)?.messages.at(-1);
    return message?.answer && message.answer.outcome !== 'streaming' ? conversations : null;
  });
  return { conversation: all.at(-1), message: all.at(-1).messages.at(-1) };
}

/* What the API says to the same question with the same id. */
async function wholeAnswer(node, conversation, message) {
  const question = conversation.messages.find((each) => each.id === message.parent);
  const { temperature, top_p, top_k, min_p, max_tokens } = message.answer.sampling;
  const response = await fetch(`${node.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-request-id': message.answer.requestId },
    body: JSON.stringify({
      model: message.answer.model,
      messages: [{ role: 'user', content: question.text }],
      temperature, top_p, top_k, min_p,
      ...(max_tokens ? { max_tokens } : {}),
    }),
  });
  assert.equal(response.status, 200);
  return (await response.json()).choices[0].message.content;
}

async function sameAsWhole(page, node) {
  const { conversation, message } = await lastAnswer(page);
  assert.equal(message.text, await wholeAnswer(node, conversation, message));
  return message;
}

test('asked and answered: the text, who made it, and it is there after a reload', async () => {
  const page = await openChat(laptop);
  assert.deepEqual(await accessibility(page), []);
  await world.shot(page, 'chat-empty-light');
  await ask(page, 'Tell me a story about a cat.');
  await hasText(page);
  assert.match(await page.locator('p[role=status].unseen').textContent(), /being written/);
  await settled(page);
  const message = await sameAsWhole(page, laptop);
  assert.ok(message.answer.usage.completion_tokens > 10);
  assert.equal(await page.evaluate((field) => document.activeElement.matches(field), FIELD), true, 'the focus stays in the field');
  await page.locator('details.made summary').click();
  await waitFor('the node says which machine made it', async () =>
    (await page.locator('details.made').textContent()).includes('sim:card'));
  assert.deepEqual(await accessibility(page), []);
  await world.shot(page, 'chat-answer-light');
  const shown = await answers(page).last().locator('.md').textContent();
  await page.reload();
  await page.waitForSelector('article.assistant');
  assert.equal(await answers(page).last().locator('.md').textContent(), shown);
  assert.deepEqual(page.problems, []);
});

test('stopped, gone on with, and the text is the undisturbed one', async () => {
  const page = await openChat(laptop);
  await ask(page, 'Tell me a story about a bear.');
  await hasText(page, 40);
  await page.getByRole('button', { name: 'Stop' }).click();
  await settled(page, ['stopped']);
  const half = (await lastAnswer(page)).message.text;
  await page.getByRole('button', { name: 'Go on' }).click();
  await settled(page);
  const message = await sameAsWhole(page, laptop);
  assert.ok(message.text.startsWith(half) && message.text.length > half.length);
  assert.deepEqual(page.problems, []);
});

test('a reload in mid-answer: the same answer goes on', async () => {
  const page = await openChat(laptop);
  await ask(page, 'Tell me a story about a dog.');
  await hasText(page, 60);
  await page.reload();
  await settled(page);
  await sameAsWhole(page, laptop);
  assert.equal(await answers(page).count(), 1);
  assert.deepEqual(page.problems, []);
});

test('answered again, edited, and each branch is still there', async () => {
  const page = await openChat(laptop);
  await ask(page, 'Hello!');
  await settled(page);
  const first = await answers(page).last().locator('.md').textContent();
  await page.getByRole('button', { name: 'Answer again' }).click();
  await page.waitForFunction(() => document.querySelectorAll('article.assistant').length === 1);
  await settled(page);
  await page.getByLabel('Branch 2 of 2').waitFor();
  await page.getByRole('button', { name: 'The branch before' }).click();
  assert.equal(await answers(page).last().locator('.md').textContent(), first);
  await page.locator('article.user').getByRole('button', { name: 'Edit' }).click();
  await page.getByLabel('Edit the question').fill('Good bye!');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelector('article.user .bubble')?.textContent === 'Good bye!');
  await settled(page);
  await page.locator('h1').click();
  await page.keyboard.press('[');
  await page.waitForFunction(() => document.querySelector('article.user .bubble')?.textContent === 'Hello!');
  assert.equal(await answers(page).last().locator('.md').textContent(), first);
  const { conversation } = await lastAnswer(page);
  assert.equal(conversation.messages.length, 5);
  assert.deepEqual(page.problems, []);
});

test('settings hold: a longest answer and a stop text; wrong ones are refused', async () => {
  const page = await openChat(laptop);
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('Temperature').fill('3');
  await page.getByText('must be from 0 to 2').waitFor();
  assert.equal(await page.getByRole('button', { name: 'Keep' }).isDisabled(), true);
  await page.getByLabel('Temperature').fill('0');
  await page.getByLabel('Longest answer').fill('7');
  assert.deepEqual(await accessibility(page), []);
  await page.getByRole('button', { name: 'Keep' }).click();
  await ask(page, 'Tell me a story about a fox.');
  await settled(page, ['length']);
  const { message } = await lastAnswer(page);
  assert.equal(message.answer.usage.completion_tokens, 7);
  assert.deepEqual(page.problems, []);
});

test('out to a file, deleted, and in again', async () => {
  const page = await openChat(laptop);
  await ask(page, 'Hi');
  await settled(page);
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'Export' }).click(),
  ]);
  const file = await download.path();
  await page.getByRole('button', { name: 'Delete “Hi”' }).click();
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await waitFor('it is gone', async () => (await stored(page)).length === 0);
  await page.locator('input[type=file]').first().setInputFiles(file);
  await waitFor('it is back', async () => (await stored(page)).length === 1);
  assert.deepEqual(page.problems, []);
});

test('the node that the page asks is killed and comes back: the answer goes on', async () => {
  const entry = await world.node('entry', '--new', '--model', model, '--sim', await world.sim('slow', { ...DEVICE, decode: '40MB/s' }));
  const page = await openChat(entry, { allowed: [/ERR_|Failed to load/] });
  await ask(page, 'Tell me a story about a horse.');
  await hasText(page, 60);
  await entry.kill();
  await page.getByText('Lost the stream').waitFor();
  await world.shot(page, 'chat-lost-light');
  await entry.start();
  await settled(page);
  await sameAsWhole(page, entry);
  assert.deepEqual(page.problems, []);
});

test('kill -9 of the machine that computes: told, and the same text to its end', async () => {
  const [first, second] = await world.pair({ name: 'desk' }, { name: 'tower' });
  const page = await openChat(first, { scheme: 'dark', allowed: [/ERR_|Failed to load/] });
  await ask(page, 'Tell me a story about a mouse.');
  await hasText(page, 60);
  await page.evaluate(() => {
    window.pauses = new Set(); // what is said, however short it is shown
    const look = () => document.querySelectorAll('p.pause').forEach((each) => window.pauses.add(each.textContent));
    new MutationObserver(look).observe(document.body, { childList: true, subtree: true, characterData: true });
  });
  await second.kill();
  await page.waitForFunction(() => window.pauses.size > 0, null, { timeout: 20_000 });
  await world.shot(page, 'chat-pause-dark');
  await settled(page);
  await sameAsWhole(page, first);
  const said = (await page.evaluate(() => [...window.pauses])).join('\n');
  assert.match(said, /tower does not answer|works on it|being loaded|The node says/);
  assert.deepEqual(page.problems, []);
});

test('the node that the page asks is gone for good: the same answer goes on at another', async () => {
  const [first, second] = await world.pair({ name: 'hall' }, { name: 'attic', host: '127.0.0.2' });
  const page = await openChat(first, { allowed: [/ERR_|Failed to load/, /^request to http:\/\/127\.0\.0\.2:/] });
  await ask(page, 'Tell me a story about an owl.');
  await hasText(page, 60);
  await first.kill();
  await page.getByRole('button', { name: 'Go on at attic' }).click();
  await page.getByText('Go on with this chat here?').waitFor();
  assert.equal(new URL(page.url()).origin, second.url);
  assert.equal(new URL(page.url()).hash, '#/chat', 'the chat stays in no history');
  assert.equal((await stored(page)).length, 0, 'nothing is taken over unasked');
  await page.getByRole('button', { name: 'Take it over' }).click();
  await settled(page);
  await sameAsWhole(page, second);
  assert.deepEqual(page.problems, []);
});

test('a token that may ask and nothing else: the chat works without the live view', async () => {
  const page = await openChat(laptop, { scopes: ['generate'], allowed: [/403/] });
  await ask(page, 'Hi');
  await settled(page);
  await sameAsWhole(page, laptop);
  await page.getByText('Measured by this browser', { exact: false }).waitFor({ state: 'attached' });
  assert.deepEqual(page.problems, []);
});

test('360 px wide and dark: nothing sticks out, and axe is content', async () => {
  const page = await openChat(laptop, { scheme: 'dark', width: 360, height: 740 });
  await ask(page, `Say ${'verylongword'.repeat(12)}`);
  await settled(page);
  await page.locator('details.made summary').click();
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.equal(wide, 0);
  assert.deepEqual(await accessibility(page), []);
  await world.shot(page, 'chat-phone-dark');
  await page.getByRole('button', { name: 'Chats' }).click();
  await page.getByRole('button', { name: 'New chat' }).last().waitFor();
  await world.shot(page, 'chat-phone-list-dark');
  assert.deepEqual(page.problems, []);
});
