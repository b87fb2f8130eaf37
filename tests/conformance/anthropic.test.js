// /v1/messages through Anthropic's own package.
'use strict';
const assert = require('node:assert');
const { before, after, test } = require('node:test');
const Anthropic = require('@anthropic-ai/sdk');
const { start } = require('./server.js');
const { startEcho, call } = require('./echo.js');

const tools = [{ name: 'weather', description: 'now', input_schema: { type: 'object', properties: { city: { type: 'string' } } } }];
const user = (content) => [{ role: 'user', content }];
let server, echo, client, echoed;

before(async () => {
  server = await start();
  echo = await startEcho();
  client = new Anthropic({ baseURL: server.base, apiKey: 'none', maxRetries: 0 });
  echoed = new Anthropic({ baseURL: echo.base, apiKey: 'none', maxRetries: 0 });
});
after(async () => {
  await server.stop();
  await echo.stop();
});

test('a message of a real model, whole and streamed', async () => {
  const ask = { model: server.model, max_tokens: 12, temperature: 0, system: [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }],
    messages: user('Tell me a story about a fox.'), metadata: { user_id: 'x' } };
  const whole = await client.messages.create(ask);
  assert.equal(whole.type, 'message');
  assert.equal(whole.content[0].type, 'text');
  assert.equal(whole.stop_reason, 'max_tokens');
  assert.equal(whole.usage.output_tokens, 12);
  const stream = client.messages.stream(ask);
  const seen = [];
  stream.on('streamEvent', (event) => seen.push(event.type));
  const last = await stream.finalMessage();
  assert.deepEqual(last.content, whole.content);
  assert.equal(last.stop_reason, whole.stop_reason);
  assert.deepEqual(last.usage, whole.usage);
  assert.equal(seen[0], 'message_start');
  assert.deepEqual(seen.slice(-3), ['content_block_stop', 'message_delta', 'message_stop']);
});

test('a stop sequence is named', async () => {
  const reply = await echoed.messages.create({ model: echo.model, max_tokens: 99, messages: user('one two three'), stop_sequences: ['nine', ' three'] });
  assert.equal(reply.content[0].text, 'one two');
  assert.equal(reply.stop_reason, 'stop_sequence');
  assert.equal(reply.stop_sequence, ' three');
});

test('thinking and calls become blocks', async () => {
  const ask = { model: echo.model, max_tokens: 999, tools, messages: user(`<think>Hm.</think>I look. ${call('weather', { city: 'Paris' })}`) };
  const whole = await echoed.messages.create(ask);
  assert.deepEqual(whole.content.map((block) => block.type), ['thinking', 'text', 'tool_use']);
  assert.equal(whole.content[0].thinking, 'Hm.');
  assert.equal(whole.content[1].text, 'I look.');
  assert.equal(whole.content[2].name, 'weather');
  assert.deepEqual(whole.content[2].input, { city: 'Paris' });
  assert.equal(whole.stop_reason, 'tool_use');
  const streamed = await echoed.messages.stream(ask).finalMessage();
  assert.deepEqual(streamed.content.map(({ type, text, input }) => ({ type, text, input })),
    whole.content.map(({ type, text, input }) => ({ type, text, input })));
  assert.equal(streamed.stop_reason, 'tool_use');
});

test('a conversation with a call and its result', async () => {
  const reply = await echoed.messages.create({
    model: echo.model, max_tokens: 99, tools, tool_choice: { type: 'auto', disable_parallel_tool_use: true }, messages: [
      { role: 'user', content: 'Weather?' },
      { role: 'assistant', content: [{ type: 'thinking', thinking: 'Hm', signature: '' }, { type: 'text', text: 'I look' },
        { type: 'tool_use', id: 'call_1', name: 'weather', input: { city: 'Paris' } }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'call_1', content: [{ type: 'text', text: 'Sun' }] }] },
    ],
  });
  assert.equal(reply.content[0].text, 'Sun');
});

test('tokens are counted', async () => {
  const counted = await echoed.messages.countTokens({ model: echo.model, messages: user('four') });
  assert.equal(counted.input_tokens, 5); // a token is a byte, and one begins the text
});

test('errors are as the package knows them', async () => {
  const ask = { model: echo.model, max_tokens: 9, messages: user('x') };
  await assert.rejects(echoed.messages.create({ ...ask, model: 'no' }), Anthropic.NotFoundError);
  for (const [more, field] of [[{ tool_choice: { type: 'any' } }, 'tool_choice'], [{ colour: 1 }, 'colour'],
    [{ messages: [] }, 'messages'], [{ messages: user([{ type: 'image', source: {} }]) }, 'messages\\[0\\].content\\[0\\]'],
    [{ temperature: 9 }, 'temperature'], [{ max_tokens: undefined }, 'max_tokens']]) {
    await assert.rejects(echoed.messages.create({ ...ask, ...more }), (error) => {
      assert.ok(error instanceof Anthropic.BadRequestError);
      assert.equal(error.error.type, 'error');
      assert.equal(error.error.error.type, 'invalid_request_error');
      assert.match(error.error.error.message, new RegExp(field));
      return true;
    });
  }
});
