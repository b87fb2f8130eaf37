// Chat and completions through the `openai` client.
'use strict';
const assert = require('node:assert');
const { before, after, test } = require('node:test');
const { start, post, waitForSlots, metric } = require('./server.js');

const messages = [{ role: 'user', content: 'Tell me a story about a fox.' }];
let server, chat;

before(async () => {
  server = await start();
  chat = (options, more) => server.client.chat.completions.create({ model: server.model, messages, ...options }, more);
});
after(() => server.stop());

async function collect(stream) {
  const got = { chunks: [], text: '', reason: null };
  for await (const chunk of stream) {
    got.chunks.push(chunk);
    got.text += chunk.choices[0]?.delta?.content ?? chunk.choices[0]?.text ?? '';
    got.reason = chunk.choices[0]?.finish_reason ?? got.reason;
  }
  return got;
}

test('the model is listed and found by its id', async () => {
  const found = await server.client.models.retrieve(server.model);
  assert.equal(found.id, server.model);
  assert.equal(found.object, 'model');
});

test('plain chat', async () => {
  const reply = await chat({ max_tokens: 20, temperature: 0 });
  assert.equal(reply.object, 'chat.completion');
  assert.equal(reply.model, server.model);
  assert.match(reply.id, /^chatcmpl-/);
  assert.equal(reply.choices.length, 1);
  assert.equal(reply.choices[0].message.role, 'assistant');
  assert.ok(reply.choices[0].message.content.length > 0);
  assert.ok(['stop', 'length'].includes(reply.choices[0].finish_reason));
  assert.ok(reply.usage.completion_tokens <= 20);
  assert.equal(reply.usage.total_tokens, reply.usage.prompt_tokens + reply.usage.completion_tokens);
});

test('max_tokens ends with length, and counts', async () => {
  const reply = await chat({ max_completion_tokens: 3, temperature: 0 });
  assert.equal(reply.choices[0].finish_reason, 'length');
  assert.equal(reply.usage.completion_tokens, 3);
});

test('an answer under a schema validates, streamed or not', async () => {
  const Ajv = require('ajv/dist/2020').default;
  const schema = {
    type: 'object', additionalProperties: false, required: ['path', 'lines', 'mode'],
    properties: {
      path: { type: 'string', maxLength: 12 }, mode: { enum: ['read', 'write'] },
      lines: { type: 'array', items: { type: 'integer', minimum: 1, maximum: 99 }, minItems: 2, maxItems: 3 },
    },
  };
  const validate = new Ajv().compile(schema);
  const response_format = { type: 'json_schema', json_schema: { name: 'call', strict: true, schema } };
  for (const seed of [1, 2, 3, 4]) {
    const reply = await chat({ response_format, max_tokens: 400, seed });
    assert.equal(reply.choices[0].finish_reason, 'stop');
    assert.ok(validate(JSON.parse(reply.choices[0].message.content)), reply.choices[0].message.content);
    const streamed = await collect(await chat({ response_format, max_tokens: 400, seed, stream: true }));
    assert.equal(streamed.text, reply.choices[0].message.content);
  }
});

test('an answer follows an expression, a choice or a grammar', async () => {
  const ask = async (options) => (await chat({ max_tokens: 40, ...options })).choices[0].message.content;
  assert.match(await ask({ guided_regex: '(yes|no), [0-9]{3}' }), /^(yes|no), [0-9]{3}$/);
  assert.ok(['red', 'green blue'].includes(await ask({ guided_choice: ['red', 'green blue'] })));
  assert.match(await ask({ grammar: 'root ::= [a-c]{5} " end"' }), /^[a-c]{5} end$/);
});

test('a content array of text is the same as the text', async () => {
  const parts = [{ role: 'user', content: [{ type: 'text', text: 'Tell me a story ' }, { type: 'text', text: 'about a fox.' }] }];
  const [one, other] = await Promise.all([chat({ max_tokens: 16, temperature: 0 }),
    chat({ max_tokens: 16, temperature: 0, messages: parts })]);
  assert.equal(one.choices[0].message.content, other.choices[0].message.content);
});

test('a stream says the same as the whole answer', async () => {
  const options = { max_tokens: 24, temperature: 0 };
  const whole = await chat(options);
  const got = await collect(await chat({ ...options, stream: true, stream_options: { include_usage: true } }));
  assert.equal(got.text, whole.choices[0].message.content);
  assert.equal(got.reason, whole.choices[0].finish_reason);
  assert.equal(got.chunks[0].choices[0].delta.role, 'assistant');
  assert.ok(got.chunks.length > 10);
  const last = got.chunks.at(-1);
  assert.deepEqual(last.choices, []);
  assert.equal(last.usage.completion_tokens, whole.usage.completion_tokens);
  assert.equal(last.usage.prompt_tokens, whole.usage.prompt_tokens);
  assert.ok(got.chunks.slice(0, -1).every((chunk) => chunk.usage === null && chunk.id === last.id));
});

test('a stop string ends the text before it, streamed or not', async () => {
  const whole = await chat({ max_tokens: 60, temperature: 0 });
  const text = whole.choices[0].message.content;
  const stop = text.slice(12, 17);
  const expected = text.slice(0, text.indexOf(stop));
  const cut = await chat({ max_tokens: 60, temperature: 0, stop: ['no such text at all', stop] });
  assert.equal(cut.choices[0].message.content, expected);
  assert.equal(cut.choices[0].finish_reason, 'stop');
  const got = await collect(await chat({ max_tokens: 60, temperature: 0, stop, stream: true }));
  assert.equal(got.text, expected);
  assert.equal(got.reason, 'stop');
});

test('logprobs describe the text that is shown', async () => {
  const options = { max_tokens: 8, temperature: 0, logprobs: true, top_logprobs: 3 };
  const reply = await chat(options);
  const { content } = reply.choices[0].logprobs;
  assert.equal(content.length, reply.usage.completion_tokens);
  assert.equal(Buffer.from(content.flatMap((t) => t.bytes)).toString(), reply.choices[0].message.content);
  for (const token of content) {
    assert.ok(token.logprob <= 0);
    assert.equal(token.top_logprobs.length, 3);
    assert.equal(token.top_logprobs[0].token, token.token); // greedy: the best is the chosen
    assert.ok(Math.abs(token.top_logprobs[0].logprob - token.logprob) < 1e-4);
    assert.ok(token.top_logprobs[0].logprob >= token.top_logprobs[1].logprob);
  }
  const got = await collect(await chat({ ...options, stream: true }));
  const streamed = got.chunks.flatMap((chunk) => chunk.choices[0]?.logprobs?.content ?? []);
  assert.deepEqual(streamed.map((t) => t.token), content.map((t) => t.token));
});

test('n choices differ, each complete', async () => {
  const reply = await chat({ max_tokens: 20, n: 3, seed: 5, temperature: 1 });
  assert.deepEqual(reply.choices.map((c) => c.index), [0, 1, 2]);
  assert.ok(new Set(reply.choices.map((c) => c.message.content)).size > 1);
  const stream = await chat({ max_tokens: 20, n: 3, seed: 5, temperature: 1, stream: true });
  const texts = ['', '', ''];
  for await (const chunk of stream) for (const c of chunk.choices) texts[c.index] += c.delta.content ?? '';
  assert.deepEqual(texts, reply.choices.map((c) => c.message.content));
});

test('a seed repeats, another differs, none is random', async () => {
  const text = async (options) => (await chat({ max_tokens: 24, ...options })).choices[0].message.content;
  assert.equal(await text({ seed: 7 }), await text({ seed: 7 }));
  assert.notEqual(await text({ seed: 7 }), await text({ seed: 8 }));
  assert.notEqual(await text({}), await text({}));
});

test('logit_bias forbids a token, penalties and the other samplers are taken', async () => {
  const plain = await chat({ max_tokens: 4, temperature: 0 });
  const { json } = await post(server.base, '/tokenize', JSON.stringify({ content: plain.choices[0].message.content }));
  const bias = Object.fromEntries(json.tokens.map((id) => [id, -100]));
  const other = await chat({ max_tokens: 4, temperature: 0, logit_bias: bias });
  assert.notEqual(other.choices[0].message.content, plain.choices[0].message.content);
  const all = await chat({ max_tokens: 4, top_k: 20, min_p: 0.05, typical_p: 0.9, repeat_penalty: 1.1, top_p: 0.9,
    frequency_penalty: 0.5, presence_penalty: 0.5, user: 'somebody' });
  assert.ok(all.choices[0].message.content.length > 0);
});

test('a prompt that was there before is reused', async () => {
  const long = [{ role: 'user', content: 'Tell me a story about a fox and a hen who live by the river near the old mill in the valley.' }];
  const first = await chat({ max_tokens: 2, temperature: 0, messages: long });
  const again = await chat({ max_tokens: 2, temperature: 0, messages: long });
  assert.ok(again.usage.prompt_tokens_details.cached_tokens > 0);
  assert.ok(again.usage.prompt_tokens_details.cached_tokens <= again.usage.prompt_tokens);
  assert.equal(first.choices[0].message.content, again.choices[0].message.content);
});

test('completions: text, many, tokens, echo, logprobs', async () => {
  const create = (options) => server.client.completions.create({ model: server.model, temperature: 0, max_tokens: 6, ...options });
  const one = await create({ prompt: 'Once upon a time' });
  assert.equal(one.object, 'text_completion');
  assert.ok(one.choices[0].text.length > 0);
  const two = await create({ prompt: ['Once upon a time', 'The old'], n: 2 });
  assert.equal(two.choices.length, 4);
  assert.equal(two.choices[0].text, one.choices[0].text);
  const { json } = await post(server.base, '/tokenize', JSON.stringify({ content: 'Once upon a time', add_special: true }));
  const tokens = await create({ prompt: json.tokens });
  assert.equal(tokens.choices[0].text, one.choices[0].text);
  const echo = await create({ prompt: 'Once upon a time', echo: true });
  assert.equal(echo.choices[0].text, 'Once upon a time' + one.choices[0].text);
  const logprobs = (await create({ prompt: 'Once upon a time', logprobs: 2 })).choices[0].logprobs;
  assert.equal(logprobs.tokens.length, 6);
  assert.equal(logprobs.text_offset[0], 0);
  assert.ok(Object.keys(logprobs.top_logprobs[0]).length >= 2);
  const got = await collect(await create({ prompt: 'Once upon a time', stream: true }));
  assert.equal(got.text, one.choices[0].text);
});

test('echo with logprobs scores the prompt: the sum is the same however it is cut', async () => {
  const score = async (prompt) => (await server.client.completions.create(
    { model: server.model, prompt, max_tokens: 0, echo: true, logprobs: 1 })).choices[0];
  const whole = await score('Once upon a time there was a fox.');
  assert.equal(whole.text, 'Once upon a time there was a fox.');
  const { tokens, token_logprobs: scores, top_logprobs: tops } = whole.logprobs;
  assert.equal(tokens.length, scores.length);
  assert.equal(scores[0], null);
  assert.ok(scores.slice(1).every((s, i) => s <= 0 && Object.values(tops[i + 1])[0] >= s - 1e-4));
  // what follows changes nothing of what stands before
  const longer = (await score('Once upon a time there was a fox. The fox ran.')).logprobs.token_logprobs;
  scores.slice(1, -1).forEach((s, i) => assert.ok(Math.abs(s - longer[i + 1]) < 2e-2));
});

test('tokenize and detokenize are inverse', async () => {
  const content = 'A small fox, a river; and the moon.';
  const { json } = await post(server.base, '/tokenize', JSON.stringify({ content }));
  assert.ok(json.tokens.length > 3);
  const back = await post(server.base, '/detokenize', JSON.stringify({ tokens: json.tokens }));
  assert.equal(back.json.content.trim(), content);
});

test('embeddings: length one, alike for like texts, base64 the same', async () => {
  const create = (input, encoding_format) => server.client.embeddings.create({ model: server.model, input, encoding_format });
  const reply = await create(['the fox ran', 'the fox ran', 'a cup of tea'], 'float');
  const [a, b, c] = reply.data.map((d) => d.embedding);
  const dot = (x, y) => x.reduce((sum, v, i) => sum + v * y[i], 0);
  assert.ok(Math.abs(dot(a, a) - 1) < 1e-4);
  assert.ok(dot(a, b) > 0.9999);
  assert.ok(dot(a, c) < dot(a, b));
  assert.ok(reply.usage.prompt_tokens > 0);
  const packed = await create('the fox ran'); // the client asks for base64 and decodes it
  assert.equal(packed.data[0].embedding.length, a.length);
  assert.ok(Math.abs(dot(packed.data[0].embedding, a) - 1) < 1e-4);
});

test('an abort in mid-stream frees the slot', async () => {
  const before = await metric(server.base, 'medley_requests_cancelled_total');
  // a bias keeps it from ending by itself: the token that ends generation is not in /tokenize's answer, so ask for much
  const stream = await chat({ max_tokens: 400, stream: true, n: 4 });
  let n = 0;
  for await (const chunk of stream) if (chunk && ++n === 8) break; // leaving the loop aborts
  await waitForSlots(server.base, 0);
  assert.ok((await metric(server.base, 'medley_requests_cancelled_total')) >= before);
  const controller = new AbortController();
  const aborted = chat({ max_tokens: 400, n: 8 }, { signal: controller.signal });
  setTimeout(() => controller.abort(), 20);
  await assert.rejects(aborted);
  await waitForSlots(server.base, 0);
});

test('32 requests at once, each with its own answer', async () => {
  const ask = (i) => chat({ messages: [{ role: 'user', content: `Tell me story number ${i}.` }], max_tokens: 12, temperature: 0 });
  const alone = [await ask(3), await ask(17)];
  const replies = await Promise.all(Array.from({ length: 32 }, (_, i) => (i % 2 ? ask(i)
    : chat({ messages: [{ role: 'user', content: `Tell me story number ${i}.` }], max_tokens: 12, temperature: 0, stream: true }).then(collect))));
  for (const [i, reply] of replies.entries())
    assert.ok((i % 2 ? reply.choices[0].message.content : reply.text).length > 0);
  assert.equal(replies[3].choices[0].message.content, alone[0].choices[0].message.content);
  assert.equal(replies[17].choices[0].message.content, alone[1].choices[0].message.content);
  await waitForSlots(server.base, 0);
});
