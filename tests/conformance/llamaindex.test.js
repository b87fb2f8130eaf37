// LlamaIndex with its model of OpenAI's interface: chats, tools, its agent, vectors and an index.
'use strict';
const assert = require('node:assert');
const { before, after, test } = require('node:test');
const { FunctionTool, Settings, VectorStoreIndex, Document } = require('llamaindex');
const { OpenAI, OpenAIEmbedding } = require('@llamaindex/openai');
const { startBoth, callTokens, parameters, checkArguments, sunny, please, story } = require('./clients.js');

let both;
before(async () => { both = await startBoth(); });
after(() => both.stop());

const llm = (node, more) => new OpenAI({ model: node.model, apiKey: 'none', baseURL: `${node.base}/v1`, maxRetries: 0, ...more });
const user = (content) => [{ role: 'user', content }];

async function collect(stream) {
  const got = { text: '', parts: 0, calls: [] };
  for await (const { delta, options } of stream) {
    got.text += delta;
    got.parts++;
    if (options?.toolCall) got.calls = options.toolCall;
  }
  return got;
}

test('a text, whole and streamed', async () => {
  const model = llm(both.real, { maxTokens: 12, temperature: 0 });
  const whole = await model.chat({ messages: user(story) });
  assert.ok(whole.message.content.length > 0);
  const got = await collect(await model.chat({ messages: user(story), stream: true }));
  assert.equal(got.text, whole.message.content);
  assert.ok(got.parts > 4);
});

const weather = (asked) => FunctionTool.from((args) => { asked.push(args); return sunny(args); }, { name: 'weather', description: 'the weather now', parameters });

test('a required call, whole and streamed', async () => {
  const model = llm(both.real, { maxTokens: callTokens, additionalChatOptions: { tool_choice: 'required' } });
  const ask = { messages: user(story), tools: [weather([])] };
  const whole = await model.chat(ask);
  const streamed = await collect(await model.chat({ ...ask, stream: true }));
  for (const calls of [whole.message.options.toolCall, streamed.calls]) {
    assert.equal(calls.length, 1);
    assert.equal(calls[0].name, 'weather');
    checkArguments(typeof calls[0].input === 'string' ? JSON.parse(calls[0].input) : calls[0].input);
  }
});

test('its loop runs a call and gives back what it says', async () => {
  const asked = [];
  const { newMessages } = await llm(both.echo).exec({ messages: user(`I look. ${please}`), tools: [weather(asked)] });
  assert.deepEqual(asked, [{ city: 'Paris', unit: 'C' }]);
  const last = await llm(both.echo).chat({ messages: [...user('x'), ...newMessages] });
  assert.equal(last.message.content, 'Sun in Paris');
});

test('an index finds the nearer text', async () => {
  Settings.llm = llm(both.real, { maxTokens: 8 });
  Settings.embedModel = new OpenAIEmbedding({ model: both.real.model, apiKey: 'none', baseURL: `${both.real.base}/v1`, maxRetries: 0 });
  const texts = ['The fox ran home.', 'A lantern shines at night.'];
  const index = await VectorStoreIndex.fromDocuments(texts.map((text) => new Document({ text })));
  const found = await index.asRetriever({ similarityTopK: 1 }).retrieve({ query: texts[1] });
  assert.equal(found[0].node.text, texts[1]);
  assert.ok((await index.asQueryEngine().query({ query: 'What ran?' })).message.content.length > 0);
});
