// Calls that the model chooses to make (tool_choice "auto"): its text is free, and each call that it begins is valid.
'use strict';
const assert = require('node:assert');
const { before, after, test } = require('node:test');
const Ajv = require('ajv/dist/2020').default;
const { start, post } = require('./server.js');
const { makeCallingModel } = require('./calling_model.js');

const object = (properties) => ({ type: 'object', properties, required: Object.keys(properties), additionalProperties: false });
const schemas = {
  weather: object({ city: { type: 'string', maxLength: 6 }, unit: { enum: ['C', 'F'] } }),
  read: object({ lines: { type: 'array', items: { type: 'integer', minimum: 1, maximum: 99 }, minItems: 1, maxItems: 2 } }),
};
const ajv = new Ajv();
const valid = Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, ajv.compile(schema)]));
const toolsOf = (strict) => Object.entries(schemas).map(([name, parameters]) => ({ type: 'function', function: { name, parameters, strict } }));
const messages = [{ role: 'user', content: 'Do it.' }];

function check({ name, arguments: args }) {
  assert.ok(valid[name], name);
  assert.ok(valid[name](JSON.parse(args)), `${name} ${args}`);
}

for (const special of [false, true]) {
  const kind = special ? 'a special token' : 'a plain token';
  let server, model, made;
  before(async () => {
    made = makeCallingModel({ special });
    server = await start({ file: made.file, context: 1536, args: ['--rope-scaling', 'yarn', '--rope-scale', '4'] });
    model = server.model;
  });
  after(async () => {
    await server.stop();
    made.remove();
  });
  const ask = (bias, more) => ({ model, messages, tools: toolsOf(true), max_tokens: 400, temperature: 1.5, logit_bias: { [made.id]: bias }, ...more });

  test(`text, then calls, each of its schema: the mark is ${kind}`, async () => {
    const seen = new Set();
    let afterText = 0;
    for (let seed = 1; seed <= 8; seed++) {
      const { choices: [{ message, finish_reason }] } = await server.client.chat.completions.create(ask(9, { seed, tools: toolsOf(seed % 2 === 0) }));
      const calls = message.tool_calls ?? [];
      afterText += Boolean(message.content && calls.length);
      if (finish_reason !== 'length') assert.ok(!/tool_call/.test(message.content ?? ''), message.content);
      for (const call of finish_reason === 'length' ? calls.slice(0, -1) : calls) {
        check(call.function);
        seen.add(call.function.name);
      }
    }
    assert.ok(seen.size > 1 && afterText, `${seen.size} tools, ${afterText} after text`);
  });

  test(`one call ends the answer where parallel_tool_calls is false: ${kind}`, async () => {
    for (let seed = 1; seed <= 4; seed++) {
      const one = ask(100, { seed, parallel_tool_calls: false });
      const { choices: [{ message, finish_reason }] } = await server.client.chat.completions.create(one);
      assert.equal(finish_reason, 'tool_calls');
      assert.equal(message.tool_calls.length, 1);
      check(message.tool_calls[0].function);
      const streamed = await server.client.chat.completions.stream({ ...one, stream: true }).finalMessage();
      assert.deepEqual(streamed.tool_calls.map((call) => call.function.arguments), [message.tool_calls[0].function.arguments]);
    }
  });

  test(`without a call the text is what it was: ${kind}`, async () => {
    const plain = { model, max_tokens: 60, temperature: 0, logit_bias: { [made.id]: -100 } };
    const held = await server.client.chat.completions.create({ ...plain, messages, tools: toolsOf(true) });
    const { json: { prompt } } = await post(server.base, '/apply-template', JSON.stringify({ model, messages, tools: toolsOf(true) }));
    const free = await server.client.completions.create({ ...plain, prompt });
    assert.equal(held.usage.prompt_tokens, free.usage.prompt_tokens);
    assert.equal(held.choices[0].message.content, free.choices[0].text.trim());
  });

  test(`what cannot be honoured is refused if strict, else left free: ${kind}`, async () => {
    const bad = (strict) => [{ type: 'function', function: { name: 'bad', strict, parameters: { type: 'object', properties: { a: { uniqueItems: true } } } } }];
    await assert.rejects(server.client.chat.completions.create(ask(0, { tools: bad(true) })), (error) => {
      assert.equal(error.status, 400);
      assert.equal(error.param, 'tools[0].function.parameters');
      return true;
    });
    await server.client.chat.completions.create(ask(0, { tools: bad(false), max_tokens: 4 }));
  });
}
