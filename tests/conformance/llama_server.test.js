// The interface of llama.cpp's server: there is no package for it, so its requests are written here.
'use strict';
const assert = require('node:assert');
const { before, after, test } = require('node:test');
const { start, post } = require('./server.js');
const { startEcho } = require('./echo.js');

let server, echo;
before(async () => {
  server = await start();
  echo = await startEcho();
});
after(async () => {
  await server.stop();
  await echo.stop();
});

const ask = (path, body) => post(server.base, path, JSON.stringify(body));
const get = async (path) => (await fetch(server.base + path)).json();

test('a completion, whole and streamed, without naming the model', async () => {
  const body = { prompt: 'Once upon a time', n_predict: 10, temperature: 0, cache_prompt: true, seed: -1 };
  const { status, json } = await ask('/completion', body);
  assert.equal(status, 200);
  assert.equal(json.stop, true);
  assert.equal(json.stop_type, 'limit');
  assert.equal(json.tokens_predicted, 10);
  const same = await server.client.completions.create({ model: server.model, prompt: body.prompt, max_tokens: 10, temperature: 0 });
  assert.equal(json.content, same.choices[0].text);
  const reply = await fetch(`${server.base}/completion`, { method: 'POST', body: JSON.stringify({ ...body, stream: true }) });
  const events = (await reply.text()).split('\n\n').filter(Boolean).map((event) => JSON.parse(event.replace(/^data: /, '')));
  assert.equal(events.map((event) => event.content).join(''), json.content);
  assert.deepEqual(events.map((event) => event.stop), events.map((_, index) => index === events.length - 1));
});

test('a stop string is named; without n_predict a completion goes on', async () => {
  const { json } = await ask('/completion', { prompt: 'Once upon a time', temperature: 0, stop: ['zzzz', '.'] });
  assert.equal(json.stop_type, 'word');
  assert.equal(json.stopping_word, '.');
  assert.ok(json.tokens_predicted > 0);
});

test('a template is applied', async () => {
  const { json } = await ask('/apply-template', { messages: [{ role: 'user', content: 'Hello fox' }] });
  assert.match(json.prompt, /Hello fox/);
});

test('props and slots', async () => {
  const props = await get('/props');
  assert.equal(props.total_slots, 8);
  assert.equal(props.model_alias, server.model);
  assert.ok(props.default_generation_settings.n_ctx > 0);
  const slots = await get('/slots');
  assert.equal(slots.length, 8);
  assert.equal(slots[0].is_processing, false);
});

test('what is not supported is named', async () => {
  for (const [body, field] of [[{ prompt: 'x', mirostat: 1 }, 'mirostat'], [{}, 'prompt'], [{ prompt: 'x', temperature: 'hot' }, 'temperature']]) {
    const { status, json } = await ask('/completion', body);
    assert.equal(status, 400);
    assert.equal(json.error.param, field);
  }
});

// The marks of the model that repeats its prompt are <, | and >.
test('the middle of a text is filled in, in three interfaces', async () => {
  const infill = await post(echo.base, '/infill', JSON.stringify({ input_prefix: 'int f(', prompt: 'int', input_suffix: ') {}' }));
  assert.equal(infill.json.content, '<int f(int|) {}>');
  assert.equal((await post(echo.base, '/infill', JSON.stringify({ input_prefix: 'a', input_extra: [] }))).json.content, '<a|>');
  const completion = await post(echo.base, '/v1/completions', JSON.stringify({ model: echo.model, prompt: 'a', suffix: 'b' }));
  assert.equal(completion.json.choices[0].text, '<a|b>');
  const generate = await post(echo.base, '/api/generate', JSON.stringify({ model: echo.model, prompt: 'a', suffix: 'b', stream: false }));
  assert.equal(generate.json.response, '<a|b>');
});

test('a model without the tokens for it says so', async () => {
  for (const [path, body] of [['/infill', { input_prefix: 'a' }], ['/v1/completions', { model: server.model, prompt: 'a', suffix: 'b' }]]) {
    const { status, json } = await ask(path, body);
    assert.equal(status, 400);
    assert.match(json.error.message, /fill in the middle/);
  }
  const tokens = await ask('/v1/completions', { model: server.model, prompt: [1, 2], suffix: 'b' });
  assert.equal(tokens.json.error.param, 'suffix');
  const extra = await ask('/infill', { input_prefix: 'a', input_extra: [{ filename: 'b', text: 'c' }] });
  assert.equal(extra.json.error.param, 'input_extra');
});
