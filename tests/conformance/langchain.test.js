// LangChain's chat model of OpenAI's interface: its chats and its responses.
'use strict';
const assert = require('node:assert');
const { before, after, describe, test } = require('node:test');
const { ChatOpenAI, OpenAIEmbeddings } = require('@langchain/openai');
const { HumanMessage, SystemMessage, ToolMessage } = require('@langchain/core/messages');
const { startBoth, callTokens, parameters, checkArguments, sunny, please, story } = require('./clients.js');

const weather = { type: 'function', function: { name: 'weather', description: 'the weather now', parameters } };
let both;
before(async () => { both = await startBoth(); });
after(() => both.stop());

for (const useResponsesApi of [false, true]) {
  const chat = (node, more) => new ChatOpenAI({ model: node.model, apiKey: 'none', configuration: { baseURL: `${node.base}/v1` }, maxRetries: 0, useResponsesApi, ...more });
  describe(useResponsesApi ? 'responses' : 'chats', () => {
    test('a text, whole and streamed', async () => {
      const model = chat(both.real, { maxTokens: 12, temperature: 0 });
      const messages = [new SystemMessage('Be brief.'), new HumanMessage(story)];
      const whole = await model.invoke(messages);
      assert.ok(whole.text.length > 0);
      assert.equal(whole.usage_metadata.output_tokens, 12);
      let text = '', parts = 0;
      for await (const part of await model.stream(messages)) {
        text += part.text;
        parts++;
      }
      assert.equal(text, whole.text);
      assert.ok(parts > 4);
    });

    test('a required call, whole and streamed', async () => {
      const model = chat(both.real, { maxTokens: callTokens }).bindTools([weather], { tool_choice: useResponsesApi ? 'weather' : 'required' }); // it sends no 'required' there
      const whole = await model.invoke(story);
      let streamed;
      for await (const part of await model.stream(story)) streamed = streamed ? streamed.concat(part) : part;
      for (const { tool_calls: calls } of [whole, streamed]) {
        assert.equal(calls.length, 1);
        assert.equal(calls[0].name, 'weather');
        checkArguments(calls[0].args);
      }
    });

    for (const streams of [false, true]) {
      test(`a call is run and its result given back, ${streams ? 'streamed' : 'whole'}`, async () => {
        const model = chat(both.echo).bindTools([weather]);
        const ask = async (messages) => {
          if (!streams) return model.invoke(messages);
          let all;
          for await (const part of await model.stream(messages)) all = all ? all.concat(part) : part;
          return all;
        };
        const messages = [new HumanMessage(`I look. ${please}`)];
        const reply = await ask(messages);
        assert.deepEqual(reply.tool_calls.map(({ name, args }) => [name, args]), [['weather', { city: 'Paris', unit: 'C' }]]);
        const [{ id, args }] = reply.tool_calls;
        messages.push(reply, new ToolMessage({ tool_call_id: id, content: sunny(args) }));
        assert.equal((await ask(messages)).text, 'Sun in Paris');
      });
    }

    test('structured output', async () => {
      for (const method of ['functionCalling', 'jsonSchema']) {
        const model = chat(both.real, { maxTokens: callTokens }).withStructuredOutput(parameters, { name: 'weather', method, strict: true });
        checkArguments(await model.invoke(story));
      }
    });
  });
}

test('vectors', async () => {
  const embeddings = new OpenAIEmbeddings({ model: both.real.model, apiKey: 'none', maxRetries: 0, configuration: { baseURL: `${both.real.base}/v1` } });
  const vectors = await embeddings.embedDocuments(['a fox', 'a lantern']);
  assert.equal(vectors.length, 2);
  assert.ok(Math.abs(Math.hypot(...vectors[0]) - 1) < 1e-3);
});
