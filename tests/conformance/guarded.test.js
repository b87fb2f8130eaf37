// What holds for every interface: tokens, their scopes, and pages of other origins.
'use strict';
const assert = require('node:assert');
const fs = require('node:fs');
const http = require('node:http');
const os = require('node:os');
const path = require('node:path');
const { before, after, test } = require('node:test');
const Anthropic = require('@anthropic-ai/sdk');
const { Ollama } = require('ollama');
const { start, run } = require('./server.js');

const paths = [['/v1/chat/completions', { messages: [{ role: 'user', content: 'x' }] }], ['/v1/responses', { input: 'x' }],
  ['/v1/messages', { max_tokens: 2, messages: [{ role: 'user', content: 'x' }] }], ['/v1/messages/count_tokens', { messages: [{ role: 'user', content: 'x' }] }],
  ['/api/chat', { stream: false, messages: [{ role: 'user', content: 'x' }], options: { num_predict: 2 } }],
  ['/api/generate', { stream: false, prompt: 'x', options: { num_predict: 2 } }], ['/completion', { prompt: 'x', n_predict: 2 }],
  ['/apply-template', { messages: [{ role: 'user', content: 'x' }] }]];
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'medley-guarded-'));
const file = path.join(folder, 'tokens.json');
let server, generates, reads;

async function token(name, scope) {
  const { code, stdout, stderr } = await run(['token', 'create', name, '--scope', scope, '--tokens', file]).exit;
  assert.equal(code, 0, stderr);
  return stdout.trim();
}

before(async () => {
  generates = await token('generates', 'generate');
  reads = await token('reads', 'read');
  server = await start({ args: ['--tokens', file], apiKey: generates });
});
after(async () => {
  await server.stop();
  fs.rmSync(folder, { recursive: true });
});

// {status, json}; fetch() sets no Origin of its own choosing.
function post(to, body, headers = {}) {
  return new Promise((resolve, reject) => {
    // a connection of its own: one that was idle may end just when it is used again
    const request = http.request(server.base + to, { method: 'POST', agent: false, headers: { 'content-type': 'application/json', ...headers } }, (reply) => {
      let text = '';
      reply.setEncoding('utf8').on('data', (piece) => (text += piece)).on('end', () => resolve({ status: reply.statusCode, json: JSON.parse(text) }));
    });
    request.on('error', reject).end(JSON.stringify({ model: server.model, ...body }));
  });
}

const shown = (key) => ({ authorization: `Bearer ${key}` });

// The text of an error in each interface's shape.
function said(to, json) {
  if (to.startsWith('/api/')) return json.error;
  if (to.startsWith('/v1/messages')) assert.equal(json.type, 'error');
  return json.error.message;
}

test('no token, one of another scope, and the right one', async () => {
  for (const [to, body] of paths) {
    for (const [headers, status] of [[{}, 401], [shown('medley_wrong'), 401], [shown(reads), 403], [shown(generates), 200]]) {
      const reply = await post(to, body, headers);
      assert.equal(reply.status, status, `${to}: ${JSON.stringify(reply.json)}`);
      if (status !== 200) assert.ok(said(to, reply.json).length > 0);
    }
  }
});

test('a page of another origin is refused everywhere', async () => {
  for (const [to, body] of paths) {
    const { status } = await post(to, body, { ...shown(generates), origin: 'http://elsewhere.example' });
    assert.equal(status, 403, to);
  }
});

test('a name that is not this machine\'s is refused everywhere', async () => {
  for (const [to, body] of paths) {
    const { status } = await post(to, body, { ...shown(generates), host: 'elsewhere.example' });
    assert.ok(status >= 400, to);
  }
});

test('packages show their tokens in their own way', async () => {
  const anthropic = new Anthropic({ baseURL: server.base, apiKey: generates, maxRetries: 0 });
  const ask = { model: server.model, max_tokens: 2, messages: [{ role: 'user', content: 'x' }] };
  assert.equal((await anthropic.messages.create(ask)).type, 'message');
  const wrong = new Anthropic({ baseURL: server.base, apiKey: 'wrong', maxRetries: 0 });
  await assert.rejects(wrong.messages.create(ask), Anthropic.AuthenticationError);
  const ollama = new Ollama({ host: server.base, headers: shown(generates) });
  assert.equal((await ollama.list()).models.length, 1);
  await assert.rejects(new Ollama({ host: server.base }).list(), /token/i);
});
