// gRPC on the API's port, through @grpc/grpc-js: docs/grpc.md.
'use strict';
const assert = require('node:assert');
const fs = require('node:fs');
const http2 = require('node:http2');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { before, after, test } = require('node:test');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');
const { start, run, model, devices, waitForSlots } = require('./server.js');
const { startEcho, call } = require('./echo.js');

const options = { keepCase: true, longs: Number, defaults: false };
const load = (file) => grpc.loadPackageDefinition(loader.loadSync(path.join(process.cwd(), 'proto', file), options));
const { Medley } = load('medley.proto').medley.v1;
const reflection = load('grpc_reflection.proto').grpc.reflection.v1;
const plain = grpc.credentials.createInsecure();
const user = (content) => [{ role: 'user', content }];
const status = grpc.status;
let server, echo, client, echoed;

before(async () => {
  server = await start();
  echo = await startEcho();
  client = new Medley(new URL(server.base).host, plain);
  echoed = new Medley(new URL(echo.base).host, plain);
});
after(async () => {
  client.close();
  echoed.close();
  await server.stop();
  await echo.stop();
});

const unary = (of, method, request, metadata = new grpc.Metadata(), more = {}) => new Promise((resolve, reject) =>
  of[method](request, metadata, more, (error, reply) => (error ? reject(error) : resolve(reply))));

// Everything that a stream says, and how it ended.
function gather(stream) {
  const messages = [];
  return new Promise((resolve) => {
    stream.on('data', (message) => messages.push(message));
    stream.on('error', () => {});
    stream.on('status', ({ code, details }) => resolve({ messages, code, details }));
  });
}

const text = (messages) => messages.flatMap((m) => m.choices ?? []).map((c) => c.delta?.content ?? c.text ?? '').join('');

test('models', async () => {
  const { data } = await unary(client, 'ListModels', {});
  assert.deepEqual(data.map((m) => m.id), [server.model]);
  assert.ok(data[0].created > 0);
});

test('a chat, streamed, is what HTTP answers', async () => {
  const ask = { model: server.model, messages: user('Tell me a story about a fox.'), max_tokens: 24, temperature: 0 };
  const whole = await server.client.chat.completions.create(ask);
  const { messages, code, details } = await gather(client.Generate(ask));
  assert.equal(code, status.OK, details);
  assert.ok(messages.length > 10, `${messages.length} messages`);
  assert.equal(text(messages), whole.choices[0].message.content);
  assert.equal(messages.at(-1).usage.completion_tokens, 24);
  assert.equal(messages.flatMap((m) => m.choices ?? []).at(-1).finish_reason, 'length');
});

test('a prompt, continued', async () => {
  const ask = { model: server.model, prompt: 'Once upon a time', max_tokens: 8, temperature: 0 };
  const whole = await server.client.completions.create(ask);
  const { messages, code } = await gather(client.Generate(ask));
  assert.equal(code, status.OK);
  assert.equal(text(messages), whole.choices[0].text);
});

test('tools and their calls', async () => {
  const tools = [{ type: 'function', function: { name: 'weather', parameters: { type: 'object', properties: { city: { type: 'string' } } } } }];
  const { messages, code, details } = await gather(echoed.Generate({
    model: echo.model, messages: user(call('weather', { city: 'Paris' })), max_tokens: 500, tools_json: JSON.stringify(tools) }));
  assert.equal(code, status.OK, details);
  const calls = messages.flatMap((m) => m.choices ?? []).flatMap((c) => c.delta?.tool_calls ?? []);
  assert.equal(calls[0].function.name, 'weather');
  assert.deepEqual(JSON.parse(calls.map((c) => c.function.arguments ?? '').join('')), { city: 'Paris' });
});

test('many calls at once on one connection', async () => {
  const replies = await Promise.all(Array.from({ length: 12 }, (_, i) =>
    gather(echoed.Generate({ model: echo.model, messages: user(`number ${i}`), max_tokens: 50 }))));
  replies.forEach(({ messages, code, details }, i) => {
    assert.equal(code, status.OK, details);
    assert.equal(text(messages), `number ${i}`);
  });
});

test('a cancelled call ends its work', async () => {
  const stream = client.Generate({ model: server.model, messages: user('Go on for long.'), max_tokens: 400, temperature: 1 });
  const ended = gather(stream);
  await new Promise((resolve) => stream.once('data', resolve));
  stream.cancel();
  assert.equal((await ended).code, status.CANCELLED);
  await waitForSlots(server.base, 0);
});

// grpc-js ends such a call by itself, so this one is put together by hand.
test('a deadline ends its work, and the caller is told', async () => {
  const session = http2.connect(server.base);
  const stream = session.request({ ':method': 'POST', ':path': '/medley.v1.Medley/Generate', 'content-type': 'application/grpc', te: 'trailers', 'grpc-timeout': '5m' });
  const message = Buffer.from(Medley.service.Generate.requestSerialize({ model: server.model, messages: user('Go on.'), max_tokens: 480 }));
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  stream.end(Buffer.concat([head, message]));
  const trailers = await new Promise((resolve, reject) => {
    stream.on('trailers', resolve).on('error', reject).resume();
    stream.on('response', (headers) => headers['grpc-status'] && resolve(headers));
  });
  session.close();
  assert.equal(Number(trailers['grpc-status']), status.DEADLINE_EXCEEDED);
  assert.match(trailers['grpc-message'], /deadline/);
  await waitForSlots(server.base, 0);
});

test('errors say what to do', async () => {
  const failing = async (promise) => promise.then(() => assert.fail('it worked'), (error) => error);
  let error = (await gather(client.Generate({ model: 'nobody', messages: user('x') })));
  assert.equal(error.code, status.NOT_FOUND);
  assert.match(error.details, /nobody/);
  error = await gather(client.Generate({ model: server.model, messages: user('x'), temperature: 9 }));
  assert.equal(error.code, status.INVALID_ARGUMENT);
  assert.match(error.details, /temperature/);
  error = await gather(client.Generate({ model: server.model, messages: user('x'), tools_json: '[1,' }));
  assert.equal(error.code, status.INVALID_ARGUMENT);
  assert.match(error.details, /tools_json is not JSON/);
  error = await failing(unary(client, 'ListNodes', {})); // `medley serve` has no cluster
  assert.equal(error.code, status.NOT_FOUND);
  assert.match(error.details, /medley up/);
  error = await gather(client.Generate({ model: server.model, messages: user('x'.repeat(5 << 20)) }));
  assert.equal(error.code, status.RESOURCE_EXHAUSTED);
  assert.match(error.details, /4194304 bytes/);
});

// A call of any bytes.
const raw = (of, method, bytes, more = {}) => new Promise((resolve, reject) =>
  of.makeUnaryRequest(method, (b) => b, (b) => b, bytes, new grpc.Metadata(), more, (error, reply) => (error ? reject(error) : resolve(reply))));

test('unknown methods and wrong messages', async () => {
  for (const method of ['/medley.v1.Medley/Nothing', '/nobody.Nothing/At', `/${'x'.repeat(300)}`])
    await assert.rejects(raw(client, method, Buffer.alloc(0)), { code: status.UNIMPLEMENTED });
  await assert.rejects(raw(client, '/medley.v1.Medley/ListModels', Buffer.from([0xff, 0xff])), { code: status.INVALID_ARGUMENT });
  assert.equal((await raw(client, '/medley.v1.Medley/ListModels', Buffer.alloc(0))).includes(server.model), true);
});

test('reflection: services, files, symbols', async () => {
  const { ServerReflection } = reflection;
  for (const version of ['v1', 'v1alpha']) {
    const of = new grpc.Client(new URL(server.base).host, plain);
    const { requestSerialize, responseDeserialize } = ServerReflection.service.ServerReflectionInfo;
    const stream = of.makeBidiStreamRequest(`/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`, requestSerialize, responseDeserialize);
    const ended = gather(stream);
    stream.write({ list_services: '*' });
    stream.write({ file_containing_symbol: 'medley.v1.Medley.Generate' });
    stream.write({ file_by_filename: 'medley.proto' });
    stream.write({ file_containing_symbol: 'no.Such' });
    stream.end();
    const { messages, code, details } = await ended;
    of.close();
    assert.equal(code, status.OK, details);
    assert.ok(messages[0].list_services_response.service.some((s) => s.name === 'medley.v1.Medley'));
    const file = messages[1].file_descriptor_response.file_descriptor_proto[0];
    assert.deepEqual(messages[2].file_descriptor_response.file_descriptor_proto[0], file);
    assert.equal(messages[3].error_response.error_code, status.NOT_FOUND);
    // what it shows is enough to call it
    const size = Buffer.alloc(5);
    let n = 0;
    for (let left = file.length; ; left >>= 7) {
      size[n++] = (left & 0x7f) | (left > 0x7f ? 0x80 : 0);
      if (left <= 0x7f) break;
    }
    const seen = grpc.loadPackageDefinition(loader.loadFileDescriptorSetFromBuffer(
      Buffer.concat([Buffer.from([0x0a]), size.subarray(0, n), file]), options));
    const other = new seen.medley.v1.Medley(new URL(server.base).host, plain);
    assert.equal((await unary(other, 'ListModels', {})).data[0].id, server.model);
    other.close();
  }
});

test('HTTP/1.1 and HTTP/2 that is no gRPC on the same port', async () => {
  assert.equal((await fetch(`${server.base}/health`)).status, 200);
  const session = http2.connect(server.base);
  const code = await new Promise((resolve, reject) => {
    session.on('error', reject);
    session.request({ ':path': '/v1/models' }).on('response', (head) => resolve(head[':status'])).on('error', reject).resume();
  });
  session.close();
  assert.equal(code, 415);
});

test('nonsense after the preface ends the connection', async () => {
  const socket = net.connect(server.port, '127.0.0.1');
  socket.on('error', () => {});
  socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + 'x'.repeat(100));
  await new Promise((resolve) => socket.on('close', resolve).resume());
  assert.equal((await unary(client, 'ListModels', {})).data.length, 1);
});

test('a caller that does not read holds up nobody else', async () => {
  const stream = client.Generate({ model: server.model, messages: user('On and on.'), max_tokens: 200 });
  stream.on('error', () => {});
  stream.pause();
  assert.equal((await unary(client, 'ListModels', {})).data.length, 1);
  stream.cancel();
  await waitForSlots(server.base, 0);
});

test('tokens and TLS', async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'medley-grpc-'));
  const state = { ...process.env, MEDLEY_STATE_DIR: path.join(folder, 'state') };
  const made = async (...args) => {
    const { code, stdout, stderr } = await run(args, state).exit;
    assert.equal(code, 0, stderr);
    return stdout;
  };
  const secret = /medley_\S+/.exec(await made('token', 'create', 'robot', '--serve'))[0];
  const child = run(['serve', model, '--api', '127.0.0.1:0', '--tls', 'on', '--require-token', '--devices', devices], state);
  const host = await new Promise((resolve, reject) => {
    child.child.stdout.on('data', () => {
      const found = /listening on https:\/\/(127\.0\.0\.1:\d+)/.exec(child.output.stdout);
      if (found) resolve(found[1]);
    });
    child.exit.then(({ code, stderr }) => reject(new Error(`medley serve ended with ${code}: ${stderr}`)));
  });
  const authority = path.join(folder, 'ca.pem');
  await made('ca', 'export', '--out', authority);
  const secure = new Medley(host, grpc.credentials.createSsl(fs.readFileSync(authority)));
  const bearing = (token) => {
    const metadata = new grpc.Metadata();
    metadata.set('authorization', `Bearer ${token}`);
    return metadata;
  };
  try {
    const { data } = await unary(secure, 'ListModels', {}, bearing(secret));
    const { messages, code } = await gather(secure.Generate({ model: data[0].id, messages: user('Hello'), max_tokens: 8 }, bearing(secret)));
    assert.equal(code, status.OK);
    assert.ok(text(messages).length > 0);
    await assert.rejects(unary(secure, 'ListModels', {}), { code: status.UNAUTHENTICATED });
    const wrong = secret.slice(0, -1) + (secret.endsWith('x') ? 'y' : 'x');
    await assert.rejects(unary(secure, 'ListModels', {}, bearing(wrong)), { code: status.UNAUTHENTICATED });
    await assert.rejects(unary(secure, 'Unload', { instance: 'x' }, bearing(secret)), { code: status.PERMISSION_DENIED });
    const unknown = new Medley(host, grpc.credentials.createSsl());
    await assert.rejects(unary(unknown, 'ListModels', {}, bearing(secret), { deadline: Date.now() + 3000 }));
    unknown.close();
  } finally {
    secure.close();
    child.child.kill('SIGTERM');
    const { code, stderr } = await child.exit;
    fs.rmSync(folder, { recursive: true });
    assert.equal(code, 0, stderr);
  }
});
