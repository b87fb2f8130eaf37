// Tools and reasoning in chats through the `openai` package, with its own loop of calls and results.
'use strict';
const assert = require('node:assert');
const { before, after, test } = require('node:test');
const OpenAI = require('openai');
const { start } = require('./server.js');
const { startEcho, call } = require('./echo.js');

const described = { name: 'weather', description: 'now', parameters: { type: 'object', properties: { city: { type: 'string' } } } };
const user = (content) => [{ role: 'user', content }];
let server, echo, client;

before(async () => {
  server = await start();
  echo = await startEcho();
  client = new OpenAI({ baseURL: `${echo.base}/v1`, apiKey: 'none', maxRetries: 0 });
});
after(async () => {
  await server.stop();
  await echo.stop();
});

for (const stream of [false, true]) {
  test(`the package runs a tool and gives back what it says, ${stream ? 'streamed' : 'whole'}`, async () => {
    const asked = [];
    const run = client.chat.completions.runTools({ model: echo.model, stream, messages: user(`I look. ${call('weather', { city: 'Paris' })}`),
      tools: [{ type: 'function', function: { ...described, parse: JSON.parse, function: (args) => { asked.push(args); return 'Sun in Paris'; } } }] });
    assert.equal(await run.finalContent(), 'Sun in Paris');
    assert.deepEqual(asked, [{ city: 'Paris' }]);
    const roles = run.messages.map((message) => message.role);
    assert.deepEqual(roles, ['user', 'assistant', 'tool', 'assistant']);
    assert.equal(run.messages[1].tool_calls[0].id, run.messages[2].tool_call_id);
  });
}

test('ids are the same for the same request, streamed or not, and differ within it', async () => {
  const ask = { model: echo.model, messages: user(call('weather', { city: 'A' }) + call('weather', { city: 'B' })), tools: [{ type: 'function', function: described }] };
  const headers = { 'x-request-id': 'tools-1' };
  const whole = await client.chat.completions.create(ask, { headers });
  const ids = whole.choices[0].message.tool_calls.map(({ id }) => id);
  const streamed = await client.chat.completions.stream({ ...ask, stream: true }, { headers }).finalMessage();
  assert.deepEqual(streamed.tool_calls.map(({ id }) => id), ids);
  assert.deepEqual(streamed.tool_calls.map((one) => JSON.parse(one.function.arguments).city), ['A', 'B']);
  assert.notEqual(ids[0], ids[1]);
});

test('reasoning comes apart from the answer', async () => {
  const ask = { model: echo.model, messages: user('<think>\nHm.\n</think>\n\nYes.') };
  const { message } = (await client.chat.completions.create(ask)).choices[0];
  assert.deepEqual([message.reasoning_content, message.content], ['Hm.', 'Yes.']);
  const got = { reasoning: '', content: '' };
  for await (const chunk of await client.chat.completions.create({ ...ask, stream: true })) {
    got.reasoning += chunk.choices[0].delta.reasoning_content ?? '';
    got.content += chunk.choices[0].delta.content ?? '';
  }
  assert.deepEqual(got, { reasoning: 'Hm.', content: 'Yes.' });
});

test('a real model is shown tools, calls and results by its own template', async () => {
  const plain = { model: server.model, max_tokens: 4, temperature: 0, messages: user('Weather?') };
  const tools = [{ type: 'function', function: described }];
  const without = await server.client.chat.completions.create(plain);
  const shown = await server.client.chat.completions.create({ ...plain, tools });
  assert.ok(shown.usage.prompt_tokens > without.usage.prompt_tokens);
  const hidden = await server.client.chat.completions.create({ ...plain, tools, tool_choice: 'none' });
  assert.equal(hidden.usage.prompt_tokens, without.usage.prompt_tokens);
  const reply = await server.client.chat.completions.create({ ...plain, tools, messages: [...plain.messages,
    { role: 'assistant', content: null, tool_calls: [{ id: 'c1', type: 'function', function: { name: 'weather', arguments: '{"city":"Paris"}' } }] },
    { role: 'tool', tool_call_id: 'c1', content: 'Sun' }] });
  assert.ok(reply.usage.prompt_tokens > shown.usage.prompt_tokens);
});
