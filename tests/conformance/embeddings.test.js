// Encoders and rerankers through the real binary, against the vectors in tests/golden/embeddings.
'use strict';
const assert = require('node:assert');
const fs = require('node:fs');
const { test } = require('node:test');
const { start, post, metric, model: demo } = require('./server.js');

const folder = 'tests/golden/embeddings/models';
const file = (name) => `${folder}/${name}.gguf`;
const vectors = (name) => JSON.parse(fs.readFileSync(`${folder}/${name}.json`));
const dot = (x, y) => x.reduce((sum, v, i) => sum + v * y[i], 0);
const unit = (v) => v.map((x) => x / Math.sqrt(dot(v, v)));

async function serving(name, options, body) {
  const server = await start({ file: name.endsWith('.gguf') ? name : file(name), slots: 4, context: 128, ...options });
  try {
    await body(server);
  } finally {
    await server.stop();
  }
}

// F16 caches: hidden states are off by 9e-3 at most, the others' angle by less
for (const name of ['bert', 'nomic-bert', 'nomic-bert-moe', 'jina-bert-v2', 'jina-bert-v3', 'qwen3-embedding']) {
  test(`${name}: texts and tokens give the reference's vectors`, () => serving(name, {}, async (server) => {
    const { texts } = vectors(name);
    const create = (input, more) => server.client.embeddings.create({ model: server.model, input, encoding_format: 'float', ...more });
    for (const input of [texts.map((t) => t.text), texts.map((t) => t.tokens)]) {
      const reply = await create(input);
      assert.equal(reply.usage.prompt_tokens, texts.reduce((sum, t) => sum + t.tokens.length, 0));
      reply.data.forEach(({ embedding, index }, i) => {
        assert.equal(index, i);
        assert.ok(Math.abs(dot(embedding, embedding) - 1) < 1e-4);
        assert.ok(dot(embedding, unit(texts[i].vector)) > 0.9995, `${name} ${i}: ${dot(embedding, unit(texts[i].vector))}`);
      });
    }
    const packed = await server.client.embeddings.create({ model: server.model, input: texts[1].text }); // base64
    assert.ok(dot(packed.data[0].embedding, unit(texts[1].vector)) > 0.9995);
  }));
}

test('an encoder refuses what it does not do, and says why', () => serving('bert', {}, async (server) => {
  const ask = async (path, body, status, words) => {
    const reply = await post(server.base, path, JSON.stringify({ model: server.model, ...body }));
    assert.equal(reply.status, status, JSON.stringify(reply.json));
    assert.match(reply.json.error.message, words);
  };
  await ask('/v1/completions', { prompt: 'a' }, 400, /generates no text/);
  await ask('/v1/chat/completions', { messages: [{ role: 'user', content: 'a' }] }, 400, /generates no text/);
  await ask('/v1/rerank', { query: 'a', documents: ['b'] }, 400, /no head that ranks/);
  await ask('/v1/embeddings', { input: 'a cat '.repeat(100) }, 400, /128 tokens.*shorten or split/);
  await ask('/v1/embeddings', { input: 'a', dimensions: 16 }, 400, /dimensions/);
  await ask('/v1/embeddings', { input: 'a', dimensions: 33 }, 400, /have 32/);
  await ask('/v1/embeddings', { input: [[100000]] }, 400, /input/);
  const whole = await post(server.base, '/v1/embeddings', JSON.stringify({ model: server.model, input: 'a', dimensions: 32 }));
  assert.equal(whole.json.data[0].embedding.length, 32);
  assert.ok(await metric(server.base, 'medley_embedded_tokens_total') > 0);
}));

test('a text has the same vector alone and among many, on one stage and on two', () => serving('jina-bert-v2', { args: ['--split', '1,1'] }, async (server) => {
  const create = (input) => server.client.embeddings.create({ model: server.model, input, encoding_format: 'float' });
  const words = vectors('jina-bert-v2').texts.map((t) => t.text);
  const alone = (await create(words[2])).data[0].embedding;
  const many = await create(Array.from({ length: 24 }, (_, i) => words[i % 3]));
  many.data.forEach((d, i) => assert.ok(i % 3 !== 2 || dot(d.embedding, alone) > 0.9999));
}));

for (const name of ['bert-xlmr-rank', 'qwen3-rank']) {
  test(`${name}: scores are the reference's, best first`, () => serving(name, {}, async (server) => {
    const { rank } = vectors(name);
    const ask = async (more) => (await post(server.base, '/v1/rerank',
      JSON.stringify({ model: server.model, query: rank.query, documents: rank.documents, ...more }))).json;
    const reply = await ask({ return_documents: true });
    assert.equal(reply.object, 'list');
    assert.equal(reply.usage.prompt_tokens, rank.tokens.flat().length);
    assert.equal(reply.results.length, rank.documents.length);
    reply.results.forEach((r, i) => {
      assert.ok(Math.abs(r.relevance_score - rank.scores[r.index]) < 5e-3, `${name}: ${JSON.stringify(r)}`);
      assert.ok(i === 0 || reply.results[i - 1].relevance_score >= r.relevance_score);
      assert.equal(r.document.text, rank.documents[r.index]);
    });
    const best = await ask({ top_n: 1, documents: rank.documents.map((text) => ({ text })) });
    assert.equal(best.results.length, 1);
    assert.equal(best.results[0].index, rank.scores.indexOf(Math.max(...rank.scores)));
    assert.equal(best.results[0].document, undefined);
    for (const [more, words] of [[{ documents: [] }, /documents/], [{ documents: [1] }, /documents/], [{ top_n: 0 }, /top_n/],
      [{ query: null }, /query/], [{ rank_fields: [] }, /rank_fields/], [{ documents: ['a '.repeat(200)] }, /128 tokens/]])
      assert.match((await ask(more)).error.message, words);
    const input = await post(server.base, '/v1/embeddings', JSON.stringify({ model: server.model, input: 'a' }));
    assert.match(input.json.error.message, /rerank/);
    const text = await post(server.base, '/v1/completions', JSON.stringify({ model: server.model, prompt: 'a' }));
    assert.match(text.json.error.message, /generates no text/);
  }));
}

test('a generating model embeds beside a stream, and does not rank', () => serving(demo, { context: 512 }, async (server) => {
  const stream = server.client.completions.create({ model: server.model, prompt: 'Once', max_tokens: 60 });
  const reply = await server.client.embeddings.create({ model: server.model, input: ['the fox', 'a cup'], encoding_format: 'float' });
  assert.ok(Math.abs(dot(reply.data[0].embedding, reply.data[0].embedding) - 1) < 1e-4);
  assert.ok((await stream).choices[0].text.length > 0);
  const rank = await post(server.base, '/v1/rerank', JSON.stringify({ model: server.model, query: 'a', documents: ['b'] }));
  assert.match(rank.json.error.message, /no head that ranks/);
}));
