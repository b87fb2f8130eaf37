// Files and batches with OpenAI's client against the real server.
'use strict';
const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { afterEach, beforeEach, test } = require('node:test');
const OpenAI = require('openai');
const { toFile } = require('openai');
const { start, run, waitForSlots } = require('./server.js');

let state, server;

beforeEach(async () => {
  state = fs.mkdtempSync(path.join(os.tmpdir(), 'medley-batches-'));
});
afterEach(async () => {
  await server.stop();
  fs.rmSync(state, { recursive: true });
});

const begin = async (more = {}) => { server = await start({ env: { ...process.env, MEDLEY_STATE_DIR: state }, ...more }); };
const lines = (list) => `${list.map((one) => JSON.stringify(one)).join('\n')}\n`;
const chat = (id, max_tokens, more = {}) => ({ custom_id: id, method: 'POST', url: '/v1/chat/completions',
  body: { model: server.model, messages: [{ role: 'user', content: `Tell me of ${id}.` }], max_tokens, temperature: 0, ...more } });
const upload = async (text, client = server.client) => client.files.create({ purpose: 'batch', file: await toFile(Buffer.from(text), 'requests "1".jsonl') });
const create = (file, more = {}) => server.client.batches.create({ input_file_id: file.id, endpoint: '/v1/chat/completions', completion_window: '24h', ...more });

async function ended(id, client = server.client) {
  for (const end = Date.now() + 60000; Date.now() < end; await new Promise((resolve) => setTimeout(resolve, 50))) {
    const batch = await client.batches.retrieve(id);
    if (batch.status !== 'in_progress') return batch;
  }
  throw new Error('the batch does not end');
}

async function read(id, client = server.client) {
  const text = await (await client.files.content(id)).text();
  return text.trimEnd().split('\n').map((line) => JSON.parse(line));
}

test('a file is kept as it is, listed, and deleted', async () => {
  await begin();
  const text = `{"a":1}\r\n--x\r\n${'é'.repeat(50000)}\n\n`;
  const file = await upload(text);
  assert.equal(file.filename, 'requests "1".jsonl');
  assert.equal(file.bytes, Buffer.byteLength(text));
  assert.equal(await (await server.client.files.content(file.id)).text(), text);
  const other = await upload('');
  assert.deepEqual((await server.client.files.list()).data.map(({ id }) => id).sort(), [file.id, other.id].sort());
  assert.equal((await server.client.files.list({ limit: 1 })).data.length, 1);
  assert.deepEqual(await server.client.files.retrieve(file.id), file);
  assert.equal((await server.client.files.delete(other.id)).deleted, true);
  await assert.rejects(server.client.files.retrieve(other.id), { status: 404 });
  await assert.rejects(server.client.files.content('file-../../x'), { status: 404 });
  await server.stop();
  await begin();
  assert.equal(await (await server.client.files.content(file.id)).text(), text);
});

test('forms that are wrong say why', async () => {
  await begin();
  await assert.rejects(server.client.files.create({ purpose: 'fine-tune', file: await toFile(Buffer.from('x'), 'x') }), { status: 400, param: 'purpose' });
  const send = async (body) => (await fetch(`${server.base}/v1/files`, { method: 'POST', body, headers: { 'content-type': 'multipart/form-data; boundary=b' } })).json();
  assert.match((await send('')).error.message, /does not begin with a delimiter/);
  assert.match((await send('--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx')).error.message, /does not end/);
  assert.equal((await send('--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b--\r\n')).error.param, 'file');
  assert.equal((await send('--b\r\nContent-Disposition: form-data; name="anchor"\r\n\r\nx\r\n--b--\r\n')).error.param, 'anchor');
});

test('a batch answers each line, good and bad', async () => {
  await begin();
  const file = await upload(lines([chat('one', 8), chat('two', 5), chat('bad', 5, { temperature: 9 }), chat('three', 3)]));
  const made = await create(file, { metadata: { night: '1' } });
  assert.equal(made.status, 'in_progress');
  const batch = await ended(made.id);
  assert.equal(batch.status, 'completed');
  assert.deepEqual(batch.request_counts, { total: 4, completed: 3, failed: 1 });
  assert.deepEqual(batch.metadata, { night: '1' });
  const answers = await read(batch.output_file_id);
  assert.deepEqual(answers.map(({ custom_id }) => custom_id).sort(), ['one', 'three', 'two']);
  const one = answers.find(({ custom_id }) => custom_id === 'one');
  assert.equal(one.response.status_code, 200);
  const alone = await server.client.chat.completions.create(chat('one', 8).body);
  assert.equal(one.response.body.choices[0].message.content, alone.choices[0].message.content);
  const [bad] = await read(batch.error_file_id);
  assert.equal(bad.custom_id, 'bad');
  assert.equal(bad.response.status_code, 400);
  assert.match(bad.response.body.error.message, /temperature/);
  assert.equal((await server.client.batches.list()).data[0].id, batch.id);
  assert.equal((await server.client.files.list({ purpose: 'batch_output' })).data.length, 2);
});

test('vectors and completions, too; what is wrong with a file is told by line', async () => {
  await begin();
  const of = (id, url, body) => ({ custom_id: id, method: 'POST', url, body: { model: server.model, ...body } });
  const vectors = await create(await upload(lines([of('v', '/v1/embeddings', { input: ['a', 'b'] })])), { endpoint: '/v1/embeddings' });
  const texts = await create(await upload(lines([of('t', '/v1/completions', { prompt: 'The', max_tokens: 2 })])), { endpoint: '/v1/completions' });
  assert.equal((await read((await ended(vectors.id)).output_file_id))[0].response.body.data.length, 2);
  assert.equal((await read((await ended(texts.id)).output_file_id))[0].response.body.object, 'text_completion');
  const wrong = await create(await upload(`${lines([chat('a', 1), chat('a', 1, { stream: true })])}{\n`));
  assert.equal(wrong.status, 'failed');
  assert.deepEqual(wrong.errors.data.map(({ code, line }) => [code, line]), [['invalid_line', 2], ['invalid_line', 3]]);
  assert.equal((await create(await upload(lines([chat('a', 1), chat('a', 1)])))).errors.data[0].code, 'duplicate_custom_id');
  assert.equal((await create(await upload(''))).errors.data[0].code, 'empty_file');
  await assert.rejects(create({ id: 'file-none' }), { status: 404 });
  await assert.rejects(create({ id: 'x' }, { completion_window: '200h' }), { status: 400, param: 'completion_window' });
});

test('who asks meanwhile does not wait for a batch', async () => {
  await begin({ slots: 1 });
  const total = 16;
  const batch = await create(await upload(lines(Array.from({ length: total }, (_, i) => chat(`n${i}`, 300)))));
  await waitForSlots(server.base, 1);
  const answer = await server.client.chat.completions.create(chat('now', 4).body);
  assert.equal(answer.usage.completion_tokens, 4);
  const after = await server.client.batches.retrieve(batch.id);
  assert.equal(after.status, 'in_progress');
  assert.ok(after.request_counts.completed < total, `${after.request_counts.completed} lines are done`);
  await assert.rejects(server.client.files.delete(batch.input_file_id), { status: 409 });
  const over = await ended(batch.id);
  assert.deepEqual(over.request_counts, { total, completed: total, failed: 0 });
});

test('a batch goes on after a restart, can be cancelled, and expires', async () => {
  await begin({ slots: 1 });
  const many = await create(await upload(lines(Array.from({ length: 20 }, (_, i) => chat(`n${i}`, 10)))));
  let some;
  do some = await server.client.batches.retrieve(many.id); while (some.request_counts.completed < 3);
  await server.stop();
  fs.appendFileSync(path.join(state, 'api-batches', `${many.id}.output`), '{"id":"batch_req_19","custom'); // as a loss of power leaves it
  await begin({ slots: 1 });
  const over = await ended(many.id);
  assert.deepEqual(over.request_counts, { total: 20, completed: 20, failed: 0 });
  assert.equal(new Set((await read(over.output_file_id)).map(({ custom_id }) => custom_id)).size, 20);

  const slow = await upload(lines(Array.from({ length: 50 }, (_, i) => chat(`s${i}`, 400))));
  const cancelled = await server.client.batches.cancel((await create(slow)).id);
  assert.equal(cancelled.status, 'cancelled');
  await assert.rejects(server.client.batches.cancel(over.id), { status: 409 });
  const expired = await ended((await create(slow, { completion_window: '1s' })).id);
  assert.equal(expired.status, 'expired');
  const { total, completed, failed } = expired.request_counts;
  assert.equal(completed + failed, total);
  assert.equal((await read(expired.error_file_id))[0].error.code, 'batch_expired');
});

test('one client never sees another\'s, and a token that is revoked computes nothing more', async () => {
  const file = path.join(state, 'tokens.json');
  const token = async (name) => (await run(['token', 'create', name, '--scope', 'generate', '--tokens', file]).exit).stdout.trim();
  const mine = await token('mine'), theirs = await token('theirs');
  await begin({ args: ['--tokens', file], apiKey: mine });
  const other = new OpenAI({ baseURL: `${server.base}/v1`, apiKey: theirs, maxRetries: 0 });
  const uploaded = await upload(lines([chat('mine', 2)]));
  const batch = await create(uploaded);
  assert.equal((await ended(batch.id)).request_counts.completed, 1);
  assert.deepEqual((await other.files.list()).data, []);
  assert.deepEqual((await other.batches.list()).data, []);
  for (const asked of [other.files.retrieve(uploaded.id), other.files.content(uploaded.id), other.files.delete(uploaded.id),
    other.batches.retrieve(batch.id), other.batches.cancel(batch.id), other.batches.create({ input_file_id: uploaded.id, endpoint: '/v1/chat/completions', completion_window: '24h' })])
    await assert.rejects(asked, { status: 404 });
  await assert.rejects(new OpenAI({ baseURL: `${server.base}/v1`, apiKey: 'none', maxRetries: 0 }).files.list(), { status: 401 });
});
