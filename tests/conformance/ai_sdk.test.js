// The package `ai` with its providers for OpenAI's and for Anthropic's interface.
'use strict';
const assert = require('node:assert');
const { before, after, describe, test } = require('node:test');
const { generateText, streamText, generateObject, embedMany, jsonSchema, stepCountIs, tool } = require('ai');
const { createOpenAICompatible } = require('@ai-sdk/openai-compatible');
const { createAnthropic } = require('@ai-sdk/anthropic');
const { startBoth, callTokens, parameters, checkArguments, sunny, please, story } = require('./clients.js');

let both;
before(async () => { both = await startBoth(); });
after(() => both.stop());

const openai = ({ base }) => createOpenAICompatible({ name: 'medley', baseURL: `${base}/v1`, apiKey: 'none', includeUsage: true, supportsStructuredOutputs: true });
const anthropic = ({ base }) => createAnthropic({ baseURL: `${base}/v1`, apiKey: 'none' });

function weather(asked) {
  return tool({ description: 'the weather now', inputSchema: jsonSchema(parameters), execute: (args) => { asked.push(args); return sunny(args); } });
}

for (const [name, provider] of [['openai-compatible', openai], ['anthropic', anthropic]]) {
  describe(name, () => {
    const at = (node) => ({ model: provider(node)(node.model), maxRetries: 0 });

    test('a text, whole and streamed', async () => {
      const ask = { ...at(both.real), system: 'Be brief.', prompt: story, maxOutputTokens: 12, temperature: 0 };
      const whole = await generateText(ask);
      assert.ok(whole.text.length > 0);
      assert.equal(whole.finishReason, 'length');
      assert.equal(whole.usage.outputTokens, 12);
      const stream = streamText(ask);
      let text = '', parts = 0;
      for await (const part of stream.textStream) {
        text += part;
        parts++;
      }
      assert.equal(text, whole.text);
      assert.ok(parts > 4);
      assert.equal((await stream.usage).outputTokens, 12);
    });

    test('a required call, whole and streamed', async () => {
      const ask = { ...at(both.real), prompt: story, maxOutputTokens: callTokens, toolChoice: 'required',
        tools: { weather: tool({ inputSchema: jsonSchema(parameters) }) } };
      const stream = streamText(ask);
      for await (const part of stream.fullStream) assert.notEqual(part.type, 'error', JSON.stringify(part));
      for (const calls of [(await generateText(ask)).toolCalls, await stream.toolCalls]) {
        assert.equal(calls.length, 1);
        assert.equal(calls[0].toolName, 'weather');
        checkArguments(calls[0].input);
      }
    });

    test('calls are run and their results given back, whole and streamed', async () => {
      const asked = [];
      const ask = { ...at(both.echo), prompt: `I look. ${please}`, tools: { weather: weather(asked) }, stopWhen: stepCountIs(3) };
      const whole = await generateText(ask);
      const stream = streamText(ask);
      for (const [text, steps] of [[whole.text, whole.steps], [await stream.text, await stream.steps]]) {
        assert.equal(text, 'Sun in Paris');
        assert.equal(steps.length, 2);
      }
      assert.deepEqual(asked, [{ city: 'Paris', unit: 'C' }, { city: 'Paris', unit: 'C' }]);
    });

    test('an object of a schema', async () => {
      const { object } = await generateObject({ ...at(both.real), prompt: story, maxOutputTokens: callTokens, schema: jsonSchema(parameters) });
      checkArguments(object);
    });

    test('reasoning comes apart', async () => {
      const { text, reasoningText } = await generateText({ ...at(both.echo), prompt: '<think>Hm.</think>Yes.' });
      assert.deepEqual([reasoningText, text], ['Hm.', 'Yes.']);
    });
  });
}

test('vectors', async () => {
  const { embeddings } = await embedMany({ model: openai(both.real).textEmbeddingModel(both.real.model), values: ['a fox', 'a lantern'] });
  assert.equal(embeddings.length, 2);
  assert.ok(Math.abs(Math.hypot(...embeddings[0]) - 1) < 1e-3);
});
