// /v1/responses through the `openai` package.
'use strict';
const assert = require('node:assert');
const { before, after, test } = require('node:test');
const OpenAI = require('openai');
const { start } = require('./server.js');
const { startEcho, call } = require('./echo.js');

const tools = [{ type: 'function', name: 'weather', description: 'now', strict: false, parameters: { type: 'object', properties: { city: { type: 'string' } } } }];
let server, echo, echoed;

before(async () => {
  server = await start();
  echo = await startEcho();
  echoed = new OpenAI({ baseURL: `${echo.base}/v1`, apiKey: 'none', maxRetries: 0 });
});
after(async () => {
  await server.stop();
  await echo.stop();
});

test('a response of a real model, whole and streamed', async () => {
  const ask = { model: server.model, input: 'Tell me a story.', instructions: 'Be brief.', max_output_tokens: 12, temperature: 0, metadata: { a: 'b' } };
  const whole = await server.client.responses.create(ask);
  assert.equal(whole.object, 'response');
  assert.equal(whole.status, 'incomplete');
  assert.equal(whole.incomplete_details.reason, 'max_output_tokens');
  assert.equal(whole.usage.output_tokens, 12);
  assert.ok(whole.output_text.length > 0);
  const chat = await server.client.chat.completions.create({ model: server.model, max_tokens: 12, temperature: 0,
    messages: [{ role: 'system', content: 'Be brief.' }, { role: 'user', content: 'Tell me a story.' }] });
  assert.equal(whole.output_text, chat.choices[0].message.content);
  const seen = [];
  let text = '';
  for await (const event of await server.client.responses.create({ ...ask, stream: true })) {
    seen.push(event);
    if (event.type === 'response.output_text.delta') text += event.delta;
  }
  assert.equal(text, whole.output_text);
  assert.deepEqual(seen.map((event) => event.sequence_number), seen.map((_, index) => index));
  assert.equal(seen[0].type, 'response.created');
  assert.equal(seen.at(-1).type, 'response.incomplete');
  assert.equal(seen.at(-1).response.output[0].content[0].text, text);
});

test('reasoning and calls are items, whole and streamed', async () => {
  const ask = { model: echo.model, tools, input: `<think>Hm.</think>I look. ${call('weather', { city: 'Paris' })}${call('weather', { city: 'Rome' })}` };
  const plain = (response) => response.output.map(({ type, name, arguments: args, content }) => ({ type, name, args, text: content?.[0]?.text }));
  const whole = await echoed.responses.create(ask);
  assert.deepEqual(plain(whole), [
    { type: 'reasoning', name: undefined, args: undefined, text: 'Hm.' },
    { type: 'message', name: undefined, args: undefined, text: 'I look.' },
    { type: 'function_call', name: 'weather', args: '{"city":"Paris"}', text: undefined },
    { type: 'function_call', name: 'weather', args: '{"city":"Rome"}', text: undefined }]);
  assert.equal(whole.status, 'completed');
  const stream = echoed.responses.stream(ask);
  const items = [];
  stream.on('event', (event) => { if (event.type === 'response.output_item.done') items.push(event.item); });
  const streamed = await stream.finalResponse();
  assert.deepEqual(plain(streamed), plain(whole));
  assert.deepEqual(plain({ output: items }), plain(whole));
  assert.deepEqual(streamed.output.map((item) => item.id), items.map((item) => item.id));
});

test('a conversation goes on, with a call and its result', async () => {
  const first = await echoed.responses.create({ model: echo.model, tools, input: call('weather', { city: 'Paris' }) });
  const id = first.output[0].call_id;
  const second = await echoed.responses.create({ model: echo.model, tools, previous_response_id: first.id,
    input: [{ type: 'function_call_output', call_id: id, output: 'Sun' }] });
  assert.equal(second.output_text, 'Sun');
  const alone = await echoed.responses.create({ model: echo.model, tools, input: [{ role: 'user', content: 'Weather?' }, first.output[0],
    { type: 'function_call_output', call_id: id, output: 'Rain' }] });
  assert.equal(alone.output_text, 'Rain');
});

test('what was said before is part of the prompt', async () => {
  const first = await server.client.responses.create({ model: server.model, input: 'Tell me a story.', max_output_tokens: 4 });
  const second = await server.client.responses.create({ model: server.model, input: 'Go on.', max_output_tokens: 4, previous_response_id: first.id });
  assert.ok(second.usage.input_tokens > first.usage.input_tokens);
  const unkept = await server.client.responses.create({ model: server.model, input: 'x', max_output_tokens: 2, store: false });
  await assert.rejects(server.client.responses.create({ model: server.model, input: 'y', previous_response_id: unkept.id }), OpenAI.NotFoundError);
});

test('an answer that follows a schema', async () => {
  const schema = { type: 'object', properties: { age: { type: 'integer', minimum: 0, maximum: 99 } }, required: ['age'], additionalProperties: false };
  for (const format of [{ type: 'json_schema', name: 'person', strict: true, schema }, { type: 'json_object' }]) {
    const response = await server.client.responses.create({ model: server.model, input: 'How old is the fox?', max_output_tokens: 200, text: { format } });
    if (!format.schema && response.status !== 'completed') continue; // any object may be long
    const answer = JSON.parse(response.output_text);
    if (format.schema) assert.ok(Number.isInteger(answer.age) && answer.age >= 0 && answer.age <= 99, response.output_text);
  }
});

test('what is not supported is named', async () => {
  for (const [more, field] of [[{ background: true }, 'background'], [{ tools: [{ type: 'web_search' }] }, 'tools'], [{ input: [] }, 'input'],
    [{ text: { format: { type: 'xml' } } }, 'response_format'], [{ tool_choice: 'required' }, 'tool_choice'],
    [{ text: { format: { type: 'json_schema', colour: 1 } } }, 'text.format.colour'], [{ colour: 1 }, 'colour']]) {
    await assert.rejects(echoed.responses.create({ model: echo.model, input: 'x', ...more }), (error) => {
      assert.equal(error.status, 400);
      assert.equal(error.param, field);
      return true;
    });
  }
});
