// Calls that are forced, and answers under a schema, by the bundled model: it has learned no calls, yet each is valid.
'use strict';
const assert = require('node:assert');
const { before, after, test } = require('node:test');
const Ajv = require('ajv/dist/2020').default;
const Anthropic = require('@anthropic-ai/sdk');
const { Ollama } = require('ollama');
const { start } = require('./server.js');

const object = (properties, more) => ({ type: 'object', properties, required: Object.keys(properties), additionalProperties: false, ...more });
const line = { type: 'integer', minimum: 1, maximum: 99 };
const schemas = {
  weather: object({ city: { type: 'string', maxLength: 8 }, unit: { enum: ['C', 'F'] } }),
  read: object({ lines: { $ref: '#/$defs/lines' }, mode: { $ref: '#/$defs/mode' } },
    { $defs: { lines: { type: 'array', items: line, minItems: 1, maxItems: 3 }, mode: { const: 'r' } } }),
  write: object({ mode: { $ref: '#/$defs/mode' }, at: line }, { $defs: { mode: { enum: ['w', 'a'] } } }),
};
const ajv = new Ajv();
const valid = Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, ajv.compile(schema)]));
const tools = Object.entries(schemas).map(([name, parameters]) => ({ type: 'function', function: { name, parameters, strict: true } }));
const messages = [{ role: 'user', content: 'Do it.' }];
const seeds = Array.from({ length: 12 }, (_, index) => index + 1);
const required = { messages, tools, tool_choice: 'required', max_tokens: 400, temperature: 2 };
let server, model;

before(async () => {
  server = await start({ context: 1536, args: ['--rope-scaling', 'yarn', '--rope-scale', '4'] }); // the tools' schemas are long
  model = server.model;
});
after(() => server.stop());

function check(name, args) {
  assert.ok(valid[name], name);
  assert.ok(valid[name](args), `${name} ${JSON.stringify(args)}`);
}

async function callOf(ask) {
  const { choices: [{ message, finish_reason }] } = await server.client.chat.completions.create({ model, ...ask });
  assert.equal(finish_reason, 'tool_calls');
  assert.equal(message.tool_calls.length, 1);
  assert.ok(!message.content);
  return message.tool_calls[0];
}

async function streamedCallOf(ask) {
  const got = { id: '', type: 'function', function: { name: '', arguments: '' } };
  let finish;
  for await (const { choices: [{ delta, finish_reason }] } of await server.client.chat.completions.create({ model, ...ask, stream: true })) {
    assert.ok(!delta.content);
    for (const part of delta.tool_calls ?? []) {
      got.id += part.id ?? '';
      got.function.name += part.function.name ?? '';
      got.function.arguments += part.function.arguments;
    }
    finish = finish_reason;
  }
  assert.equal(finish, 'tool_calls');
  return got;
}

test('a required call is one of the tools, with arguments of its schema', async () => {
  const seen = new Set();
  for (const seed of seeds) {
    const ask = { ...required, seed };
    const { function: { name, arguments: args } } = await callOf(ask);
    check(name, JSON.parse(args));
    seen.add(name);
    assert.deepEqual((await streamedCallOf(ask)).function, { name, arguments: args });
  }
  assert.ok(seen.size > 1, 'all called the same tool');
});

test('a call of a tool by name', async () => {
  for (const seed of seeds) {
    for (const name of ['weather', 'read']) {
      const ask = { ...required, seed, tool_choice: { type: 'function', function: { name } } };
      const whole = await callOf(ask);
      assert.equal(whole.function.name, name);
      check(name, JSON.parse(whole.function.arguments));
      assert.deepEqual((await streamedCallOf(ask)).function, whole.function);
    }
  }
});

test('a tool without parameters gets none, and one without a type an object', async () => {
  const one = (more) => callOf({ ...required, seed: 3, tools: [{ type: 'function', function: { name: 'now', ...more } }] });
  assert.deepEqual(JSON.parse((await one({})).function.arguments), {});
  const parameters = { enum: [5, { a: 1 }] };
  assert.deepEqual(JSON.parse((await one({ parameters })).function.arguments), { a: 1 });
});

test('max_tokens cuts a call off, and says so', async () => {
  const { choices: [{ message, finish_reason }] } = await server.client.chat.completions.create({ model, ...required, max_tokens: 3, tool_choice: { type: 'function', function: { name: 'read' } } });
  assert.equal(finish_reason, 'length');
  assert.equal(message.tool_calls[0].function.name, 'read');
});

test('cut off before its name it is no call, and no text either', async () => {
  const ask = { model, ...required, max_tokens: 1 };
  const { choices: [{ message, finish_reason }] } = await server.client.chat.completions.create(ask);
  assert.equal(finish_reason, 'length');
  assert.ok(!message.content, message.content);
  assert.equal(message.tool_calls, undefined);
  for await (const { choices: [{ delta }] } of await server.client.chat.completions.create({ ...ask, stream: true })) assert.ok(!delta.content && !delta.tool_calls);
});

test('a schema that cannot be honoured is named by its path', async () => {
  const bad = { type: 'function', function: { name: 'bad', parameters: { type: 'object', properties: { a: { type: 'array', uniqueItems: true } } } } };
  const old = { type: 'function', function: { name: 'old', parameters: { $schema: 'http://json-schema.org/draft-07/schema#', type: 'object' } } };
  const again = ['one', 'two'].map((name) => ({ type: 'function', function: { name, parameters: { $id: 'https://a.example/b', type: 'object' } } }));
  for (const [more, param, text] of [
    [{ tools: [...tools, bad] }, 'tools[3].function.parameters', /#\/properties\/a\/uniqueItems/],
    [{ tools: [bad] }, 'tools[0].function.parameters', /#\/properties\/a\/uniqueItems/],
    [{ tools: [...tools, old] }, 'tools[3].function.parameters', /#\/\$schema/],
    [{ tools: again }, 'tools', /\$id: stands twice/],
    [{ response_format: { type: 'json_object' } }, 'tool_choice', /response_format/],
    [{ tool_choice: 'auto' }, 'tools[0].function.strict', /generic format/]])
    await assert.rejects(callOf({ ...required, ...more }), (error) => {
      assert.equal(error.status, 400);
      assert.equal(error.param, param);
      assert.match(error.message, text);
      return true;
    });
});

test("Anthropic's any and tool", async () => {
  const client = new Anthropic({ baseURL: server.base, apiKey: 'none', maxRetries: 0 });
  const ask = { model, messages, max_tokens: 300, tools: Object.entries(schemas).map(([name, input_schema]) => ({ name, input_schema })) };
  for (const tool_choice of [{ type: 'any' }, { type: 'tool', name: 'write' }]) {
    for (let i = 0; i < 3; i++) {
      const whole = await client.messages.create({ ...ask, tool_choice });
      const streamed = await client.messages.stream({ ...ask, tool_choice }).finalMessage();
      for (const { content, stop_reason } of [whole, streamed]) {
        assert.equal(stop_reason, 'tool_use');
        assert.equal(content.length, 1);
        if (tool_choice.name) assert.equal(content[0].name, tool_choice.name);
        check(content[0].name, content[0].input);
      }
    }
  }
});

test("responses' required, a function by name, and their format", async () => {
  const ask = { model, input: 'Do it.', max_output_tokens: 300, tools: tools.map(({ type, function: it }) => ({ type, ...it })) };
  for (const tool_choice of ['required', { type: 'function', name: 'read' }]) {
    const whole = await server.client.responses.create({ ...ask, tool_choice });
    const streamed = await server.client.responses.stream({ ...ask, tool_choice }).finalResponse();
    for (const response of [whole, streamed]) {
      assert.deepEqual(response.tool_choice, tool_choice);
      assert.equal(response.output.length, 1);
      assert.equal(response.output[0].type, 'function_call');
      check(response.output[0].name, JSON.parse(response.output[0].arguments));
    }
  }
  const format = { type: 'json_schema', name: 'weather', strict: true, schema: schemas.weather };
  const { output_text: text } = await server.client.responses.create({ model, input: 'x', max_output_tokens: 300, text: { format } });
  check('weather', JSON.parse(text));
});

test("Ollama's format", async () => {
  const client = new Ollama({ host: server.base });
  for (const seed of seeds.slice(0, 3)) {
    const ask = { model, options: { seed, num_predict: 300 }, format: schemas.read };
    check('read', JSON.parse((await client.chat({ ...ask, messages })).message.content));
    check('read', JSON.parse((await client.generate({ ...ask, prompt: 'x' })).response));
  }
  await assert.rejects(client.chat({ model, messages, format: 'xml' }), /format/);
});
