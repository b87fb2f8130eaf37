// What a client does wrong: each a clear error, and the server goes on serving.
'use strict';
const assert = require('node:assert');
const { before, after, afterEach, test } = require('node:test');
const { start, run, post, connect, waitForSlots, model, devices } = require('./server.js');

const messages = [{ role: 'user', content: 'Hello.' }];
let server, chat;

before(async () => {
  server = await start({ slots: 2, context: 128 });
  chat = (options) => server.client.chat.completions.create({ model: server.model, messages, max_tokens: 4, ...options });
});
after(() => server.stop());
afterEach(async () => {
  const health = await fetch(`${server.base}/health`);
  assert.equal(health.status, 200);
});

function refused(promise, status, param, code = null) {
  return assert.rejects(promise, (error) => {
    assert.equal(error.status, status);
    assert.equal(error.param ?? null, param);
    assert.equal(error.code ?? null, code);
    assert.ok(error.error.message.length > 0);
    assert.ok(error.error.type.length > 0);
    return true;
  });
}

test('unknown and unsupported fields are named', async () => {
  await refused(chat({ colour: 'red' }), 400, 'colour');
  await refused(chat({ tools: [{ type: 'web_search' }] }), 400, 'tools[0]');
  await refused(chat({ response_format: { type: 'xml' } }), 400, 'response_format');
  const schema = { type: 'object', properties: { a: { uniqueItems: true } } };
  await assert.rejects(chat({ response_format: { type: 'json_schema', json_schema: { name: 'a', schema } } }), (error) =>
    error.status === 400 && error.param === 'response_format.json_schema.schema' && /#\/properties\/a\/uniqueItems: /.test(error.message));
  await refused(chat({ messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:' } }] }] }), 400,
    'messages[0].content[0].image_url.url');
  await refused(server.client.completions.create({ model: server.model, prompt: 'a', suffix: 'b' }), 400, 'suffix');
});

test('wrong types and ranges are named', async () => {
  await refused(chat({ temperature: 'hot' }), 400, 'temperature');
  await refused(chat({ temperature: 3 }), 400, 'temperature');
  await refused(chat({ n: 0 }), 400, 'n');
  await refused(chat({ messages: 'hello' }), 400, 'messages');
  await refused(chat({ stream_options: { include_usage: true } }), 400, 'stream_options');
  await refused(chat({ logit_bias: { 99999999: 1 } }), 400, 'logit_bias.99999999');
});

test('a wrong type is no default, in any interface', async () => {
  const said = { model: server.model, messages, max_tokens: 2 };
  for (const [path, body, names] of [
    ['/v1/responses', { model: server.model, input: 'x', previous_response_id: false }, /previous_response_id/],
    ['/v1/responses', { model: server.model, input: 'x', instructions: 5 }, /instructions/],
    ['/v1/responses', { model: server.model, input: [{ type: {}, role: 'user', content: 'x' }] }, /input\[0\]\.type/],
    ['/v1/messages', { ...said, max_tokens: null }, /max_tokens/],
    ['/v1/messages', { ...said, tools: [{ type: 5, name: 'a' }] }, /tools\[0\]/],
    ['/api/generate', { model: server.model, prompt: 'x', stream: -1 }, /stream/],
    ['/api/chat', { model: server.model, messages: [{ ...messages[0], tool_name: true }] }, /messages\[0\]\.tool_name/],
    ['/completion', { prompt: ['a', 'b'] }, /prompt/],
    ['/api/passes', { scopes: ['read'] }, /scopes/],
    ['/api/passes', { minutes: '5' }, /minutes/],
  ]) {
    const { status, json } = await post(server.base, path, JSON.stringify(body));
    assert.equal(status, 400, path);
    assert.match(json.error.message ?? json.error, names);
  }
});

test('an unknown model', async () => {
  await refused(chat({ model: 'gpt-4' }), 404, 'model', 'model_not_found');
  await refused(server.client.models.retrieve('gpt-4'), 404, 'model', 'model_not_found');
});

test('a prompt longer than the context says how long that is', async () => {
  await assert.rejects(chat({ messages: [{ role: 'user', content: 'word and '.repeat(400) }] }), (error) => {
    assert.equal(error.status, 400);
    assert.equal(error.code, 'context_length_exceeded');
    assert.match(error.error.message, /more tokens.*\b128\b/);
    return true;
  });
});

test('malformed JSON and invalid UTF-8 say where', async () => {
  const malformed = await post(server.base, '/v1/chat/completions', '{"model": "x", }');
  assert.equal(malformed.status, 400);
  assert.match(malformed.json.error.message, /byte \d+/);
  const invalid = Buffer.concat([Buffer.from('{"model":"'), Buffer.from([0xff, 0xfe]), Buffer.from('"}')]);
  const utf8 = await post(server.base, '/v1/chat/completions', invalid);
  assert.equal(utf8.status, 400);
  assert.match(utf8.json.error.message, /byte \d+/);
  assert.equal((await post(server.base, '/v1/chat/completions', '')).status, 400);
  assert.equal((await post(server.base, '/v1/chat/completions', '[]')).status, 400);
  assert.equal((await post(server.base, '/v1/chat/completions', '['.repeat(100000))).status, 400);
});

test('a body of 100 MB is refused', async () => {
  const { status, json } = await post(server.base, '/v1/chat/completions', Buffer.alloc(100 * 1024 * 1024, 'a'));
  assert.equal(status, 413);
  assert.equal(json.error.code, 'body_too_large');
});

test('unknown paths and methods', async () => {
  assert.equal((await post(server.base, '/v1/images', '{}')).status, 404);
  const wrong = await fetch(`${server.base}/v1/chat/completions`);
  assert.equal(wrong.status, 405);
  assert.match(wrong.headers.get('allow'), /POST/);
  const head = await fetch(`${server.base}/health`, { method: 'HEAD' });
  assert.equal(head.status, 200);
  assert.equal(await head.text(), '');
  assert.equal((await fetch(`${server.base}/v1/completions`, { method: 'OPTIONS' })).status, 204);
});

test('a port in use', async () => {
  const second = run(['serve', model, '--devices', devices, '--api', `127.0.0.1:${server.port}`]);
  const { code, stderr } = await second.exit;
  assert.equal(code, 1);
  assert.match(stderr, /in use/);
});

test('wrong words on the command line', async () => {
  assert.equal((await run(['serve', model, '--api', 'nonsense']).exit).code, 2);
  assert.equal((await run(['serve']).exit).code, 2);
  assert.equal((await run(['serve', '/no/such/file', '--api', ':0']).exit).code, 1);
});

test('a client that never reads does not hold up others', async () => {
  const socket = await connect(server.port);
  socket.pause();
  const body = JSON.stringify({ model: server.model, messages, stream: true, n: 2 });
  socket.write(`POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
  const reply = await chat({ temperature: 0 });
  assert.ok(reply.choices[0].message.content.length > 0);
  socket.destroy();
  await waitForSlots(server.base, 0);
});

test('a client that stops in the middle of its body', async () => {
  const socket = await connect(server.port);
  socket.write('POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"model":');
  await new Promise((resolve) => setTimeout(resolve, 50));
  socket.destroy();
  await waitForSlots(server.base, 0);
});
