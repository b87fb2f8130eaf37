// Ollama's interface through its own package.
'use strict';
const assert = require('node:assert');
const { before, after, test } = require('node:test');
const { Ollama } = require('ollama');
const { start, post } = require('./server.js');
const { startEcho, call } = require('./echo.js');

const tools = [{ type: 'function', function: { name: 'weather', description: 'now', parameters: { type: 'object', properties: { city: { type: 'string' } } } } }];
let server, echo, client, echoed;

before(async () => {
  server = await start();
  echo = await startEcho();
  client = new Ollama({ host: server.base });
  echoed = new Ollama({ host: echo.base });
});
after(async () => {
  await server.stop();
  await echo.stop();
});

async function collect(stream) {
  const got = { text: '', thinking: '', calls: [], lines: 0 };
  for await (const part of stream) {
    got.lines++;
    got.text += part.message?.content ?? part.response ?? '';
    got.thinking += part.message?.thinking ?? part.thinking ?? '';
    got.calls.push(...(part.message?.tool_calls ?? []));
    got.last = part;
  }
  return got;
}

test('a chat of a real model, whole and streamed', async () => {
  const ask = { model: `${server.model}:latest`, messages: [{ role: 'system', content: 'Be brief.' }, { role: 'user', content: 'Tell me a story.' }],
    options: { temperature: 0, num_predict: 12, num_ctx: 4096 }, keep_alive: '5m' };
  const whole = await client.chat({ ...ask, stream: false });
  assert.equal(whole.model, server.model);
  assert.equal(whole.done, true);
  assert.equal(whole.done_reason, 'length');
  assert.equal(whole.eval_count, 12);
  assert.ok(whole.prompt_eval_count > 0 && whole.total_duration >= whole.prompt_eval_duration);
  assert.ok(!Number.isNaN(Date.parse(whole.created_at)));
  const got = await collect(await client.chat({ ...ask, stream: true }));
  assert.equal(got.text, whole.message.content);
  assert.ok(got.lines > 6);
  assert.equal(got.last.done, true);
  assert.equal(got.last.eval_count, 12);
});

test('generate, through the template and raw', async () => {
  const options = { temperature: 0, num_predict: 8 };
  const whole = await client.generate({ model: server.model, prompt: 'Tell me a story.', options });
  const chat = await client.chat({ model: server.model, messages: [{ role: 'user', content: 'Tell me a story.' }], options });
  assert.equal(whole.response, chat.message.content);
  const got = await collect(await client.generate({ model: server.model, prompt: 'Once upon', raw: true, options, stream: true }));
  const text = await server.client.completions.create({ model: server.model, prompt: 'Once upon', temperature: 0, max_tokens: 8 });
  assert.equal(got.text, text.choices[0].text);
});

test('thinking and calls, whole and streamed', async () => {
  const ask = { model: echo.model, tools, messages: [{ role: 'user', content: `<think>Hm.</think>I look. ${call('weather', { city: 'Paris' })}` }] };
  const whole = await echoed.chat({ ...ask, think: true });
  assert.equal(whole.message.thinking, 'Hm.');
  assert.equal(whole.message.content, 'I look.');
  assert.deepEqual(whole.message.tool_calls, [{ function: { name: 'weather', arguments: { city: 'Paris' } } }]);
  const got = await collect(await echoed.chat({ ...ask, stream: true }));
  assert.deepEqual([got.thinking, got.text, got.calls], ['Hm.', 'I look.', whole.message.tool_calls]);
});

test('a conversation with a call and its result', async () => {
  const reply = await echoed.chat({ model: echo.model, tools, messages: [{ role: 'user', content: 'Weather?' },
    { role: 'assistant', content: '', tool_calls: [{ function: { name: 'weather', arguments: { city: 'Paris' } } }] },
    { role: 'tool', tool_name: 'weather', content: 'Sun' }] });
  assert.equal(reply.message.content, 'Sun');
});

test('models are listed, shown, and running', async () => {
  assert.deepEqual((await client.list()).models.map((model) => model.name), [server.model]);
  assert.deepEqual((await client.ps()).models.map((model) => model.name), [server.model]);
  assert.ok((await client.show({ model: `${server.model}:latest` })).capabilities.includes('completion'));
  assert.ok((await client.version()).version);
});

test('errors are texts', async () => {
  const ask = { model: echo.model, messages: [{ role: 'user', content: 'x' }] };
  for (const [more, status, text] of [[{ model: 'no' }, 404, /does not exist/], [{ format: 'xml' }, 400, /format/],
    [{ options: { mirostat: 1 } }, 400, /options.mirostat/], [{ messages: [] }, 400, /messages/], [{ colour: 1 }, 400, /colour/]]) {
    const { status: got, json } = await post(echo.base, '/api/chat', JSON.stringify({ ...ask, ...more }));
    assert.equal(got, status);
    assert.match(json.error, text);
  }
  await assert.rejects(echoed.pull({ model: 'x' }), /pulls none/);
});

test('what a page of another origin, or no JSON, gets', async () => {
  const body = JSON.stringify({ model: echo.model, messages: [{ role: 'user', content: 'x' }] });
  const plain = await fetch(`${echo.base}/api/chat`, { method: 'POST', body });
  assert.equal(plain.status, 415);
  assert.equal(typeof (await plain.json()).error, 'string');
  const large = JSON.stringify({ model: echo.model, messages: [{ role: 'user', content: 'x'.repeat(100000) }] });
  assert.equal((await post(echo.base, '/api/chat', large)).status, 400); // longer than the context, but it was read
});

test('vectors, of one text and of several', async () => {
  const texts = ['a fox', 'a lantern'];
  const several = await client.embed({ model: `${server.model}:latest`, input: texts, truncate: true });
  assert.equal(several.model, server.model);
  assert.equal(several.embeddings.length, 2);
  assert.ok(several.prompt_eval_count > 0 && several.total_duration > 0);
  const same = await server.client.embeddings.create({ model: server.model, input: texts, encoding_format: 'float' });
  assert.deepEqual(several.embeddings, same.data.map(({ embedding }) => embedding));
  const one = await client.embed({ model: server.model, input: texts[1] });
  assert.deepEqual(one.embeddings, [several.embeddings[1]]);
  const older = await client.embeddings({ model: server.model, prompt: texts[0] });
  assert.deepEqual(older.embedding, several.embeddings[0]);
  for (const body of [{ model: server.model }, { model: server.model, input: [[1]] }, { model: server.model, input: 'x', colour: 1 }]) {
    const { status, json } = await post(server.base, '/api/embed', JSON.stringify(body));
    assert.equal(status, 400);
    assert.equal(typeof json.error, 'string');
  }
});
