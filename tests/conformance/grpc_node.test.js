// gRPC of a node of a cluster: nodes, what changes, forecasts, placing, and answers from what was placed.
'use strict';
const assert = require('node:assert');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { before, after, test } = require('node:test');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');
const { run, model, devices } = require('./server.js');

const { Medley } = grpc.loadPackageDefinition(loader.loadSync(path.join(process.cwd(), 'proto/medley.proto'),
  { keepCase: true, longs: Number, defaults: false })).medley.v1;
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'medley-grpc-'));
let node, base, client, name, instance;

const freePort = () => new Promise((resolve) => {
  const socket = net.createServer().listen(0, '127.0.0.1', () => {
    const { port } = socket.address();
    socket.close(() => resolve(port));
  });
});

before(async () => {
  node = run(['up', '--new', '--no-discovery', '--name', 'tower', '--listen', `127.0.0.1:${await freePort()}`,
    '--api', '127.0.0.1:0', '--devices', devices], { ...process.env, MEDLEY_STATE_DIR: path.join(folder, 'state') });
  base = await new Promise((resolve, reject) => {
    node.child.stdout.on('data', () => {
      const found = /listening on (http:\/\/127\.0\.0\.1:\d+)/.exec(node.output.stdout);
      if (found) resolve(found[1]);
    });
    node.exit.then(({ code, stderr }) => reject(new Error(`medley up ended with ${code}: ${stderr}`)));
  });
  const end = Date.now() + 30000;
  for (;;) { // until the cluster is founded
    const reply = await fetch(`${base}/api/add`, { method: 'POST', headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ path: path.resolve(model) }) });
    const answer = await reply.json();
    name = answer.model;
    if (name) break;
    assert.ok(Date.now() < end, JSON.stringify(answer));
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  client = new Medley(new URL(base).host, grpc.credentials.createInsecure());
});
after(async () => {
  client?.close();
  if (!node.child.killed) node.child.kill('SIGTERM'); // a second one would end it at once
  const { code, signal, stderr } = await node.exit;
  fs.rmSync(folder, { recursive: true });
  assert.equal(code, 0, `${signal} ${stderr}`);
});

const unary = (method, request) => new Promise((resolve, reject) =>
  client[method](request, (error, reply) => (error ? reject(error) : resolve(reply))));

// Until a message that is `wanted`; the call is cancelled then.
function until(stream, wanted) {
  return new Promise((resolve, reject) => {
    stream.on('data', (message) => {
      if (!wanted(message)) return;
      resolve(message);
      stream.cancel();
    });
    stream.on('error', (error) => (error.code === grpc.status.CANCELLED ? undefined : reject(error)));
  });
}

async function all(stream) {
  const messages = [];
  for await (const message of stream) messages.push(message);
  return messages;
}

test('nodes and devices', async () => {
  const { nodes } = await unary('ListNodes', {});
  assert.equal(nodes.length, 1);
  assert.equal(nodes[0].name, 'tower');
  assert.equal(nodes[0].self, true);
  assert.equal(nodes[0].state, 'up');
  assert.ok(nodes[0].devices.length > 0 && nodes[0].devices[0].memory_bytes > 1 << 20);
});

test('a forecast', async () => {
  let forecast;
  for (const end = Date.now() + 30000; ;) { // its speed is measured first
    try {
      forecast = await unary('Forecast', { model: name, context: 512 });
      if (forecast.possible) break;
    } catch (error) {
      assert.equal(error.code, grpc.status.FAILED_PRECONDITION, error.details);
    }
    assert.ok(Date.now() < end, JSON.stringify(forecast));
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  const over = await (await fetch(`${base}/api/plan`, { method: 'POST', headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: name, context: 512 }) })).json();
  assert.ok(forecast.best.decode_tokens_per_s > 0);
  assert.deepEqual(forecast.best.stages.map((s) => [s.node, s.layers]), over.best.stages.map((s) => [s.node, s.layers]));
  assert.deepEqual(Object.keys(JSON.parse(forecast.document_json)), Object.keys(over));
  await assert.rejects(unary('Forecast', { model: 'nobody' }), { code: grpc.status.NOT_FOUND });
  await assert.rejects(unary('Forecast', { model: name, kv: 'q1' }), { code: grpc.status.INVALID_ARGUMENT });
});

test('placing, with what is told meanwhile, and generating', async () => {
  const event = until(client.Watch({ events_only: true }), (m) => /wants|placed|ready|asked/.test(m.event.text) && m.event.text.includes(name));
  const snapshot = await until(client.Watch({}), (m) => m.snapshot_json);
  assert.equal(JSON.parse(snapshot.snapshot_json).cluster.voters, 1);
  const change = until(client.Watch({}), (m) => m.change_json);
  const said = await all(client.Place({ model: name, context: 512, streams: 2 }));
  instance = said.at(-1).ready.id;
  assert.equal(said.at(-1).ready.state, 'ready');
  assert.ok(said.slice(0, -1).every((m) => m.instance && !m.ready));
  assert.ok(JSON.parse((await change).change_json));
  assert.ok((await event).event.index > 0);
  const chunks = await all(client.Generate({ model: name, messages: [{ role: 'user', content: 'A fox' }], max_tokens: 12, temperature: 0 }));
  assert.equal(chunks.at(-1).usage.completion_tokens, 12);
});

test('unloading', async () => {
  assert.equal((await unary('Unload', { instance })).unloaded, instance);
  await assert.rejects(unary('Unload', { instance: 'nothing' }), { code: grpc.status.NOT_FOUND });
});

test('a node that stops says so to who watches', async () => {
  const stream = client.Watch({});
  const ended = new Promise((resolve) => stream.on('error', resolve).on('data', () => {}));
  await until(client.Watch({}), (m) => m.snapshot_json);
  node.child.kill('SIGTERM');
  assert.equal((await ended).code, grpc.status.UNAVAILABLE);
});
