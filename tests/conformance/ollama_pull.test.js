// Ollama's client pulls a model from a registry on this machine (tests/hub), and uses it.
'use strict';
const assert = require('node:assert');
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const { after, before, test } = require('node:test');
const { Ollama } = require('ollama');
const { startNode } = require('./node.js');
const { model } = require('./server.js');

const program = `
import sys
sys.path.insert(0, 'tests/hub')
from hub_server import Hub
hub = Hub()
data = open(sys.argv[1], 'rb').read()
hub.models['library/tiny'] = {'latest': data, 'slow': data}
hub.files['org/repo'] = {'Tiny-F16.gguf': data}
print(hub.url, flush=True)
for line in sys.stdin:
    hub.faults.rate = int(line)
    print('set', flush=True)
hub.stop()
`;
let hub, node, client;

const said = () => new Promise((resolve) => hub.stdout.once('data', (text) => resolve(String(text).trim())));
async function setRate(rate) {
  const done = said();
  hub.stdin.write(`${rate}\n`);
  await done;
}

before(async () => {
  hub = spawn('python3', ['-c', program, model], { stdio: ['pipe', 'pipe', 'inherit'] });
  const url = await said();
  node = await startNode({ env: { MEDLEY_OLLAMA_REGISTRY: url, HF_ENDPOINT: url } });
  client = new Ollama({ host: node.base });
});
after(async () => {
  await node.stop();
  hub.stdin.end();
});

test('a pull tells how far it is, and then the model answers', async () => {
  const seen = [];
  for await (const part of await client.pull({ model: 'tiny', stream: true })) seen.push(part);
  assert.equal(seen[0].status, 'pulling manifest');
  assert.equal(seen.at(-1).status, 'success');
  const size = fs.statSync(model).size;
  const last = seen.filter(({ status }) => status === 'pulling').at(-1);
  assert.equal(last.total, size);
  assert.ok(last.completed <= size && last.digest);
  const { models } = await client.list();
  assert.equal(models.length, 1);
  const { message } = await client.chat({ model: models[0].name, messages: [{ role: 'user', content: 'Tell me a story.' }], options: { num_predict: 4 } });
  assert.ok(message.content);
});

test('whole, from the hub, and once more', async () => {
  assert.deepEqual(await client.pull({ model: 'hf.co/org/repo:F16' }), { status: 'success' });
  assert.deepEqual(await client.pull({ model: 'tiny:latest' }), { status: 'success' });
});

test('what cannot be pulled says why', async () => {
  await assert.rejects(client.pull({ model: 'nothing' }), /none of that name/);
  await assert.rejects(async () => { for await (const part of await client.pull({ model: 'nothing', stream: true })) assert.ok(part.status); }, /none of that name/);
  for (const name of ['', 'https://example.org/x.gguf', 'a b', '-x y', 'a//b', 'é', 'registry.example.org/library/x'])
    await assert.rejects(client.pull({ model: name }), /must be a name/, name);
  await assert.rejects(client.pull({ model: 'tiny', insecure: true }), /insecure/);
});

test('who leaves stops it, and the next one goes on', async () => {
  await setRate(100000);
  const parts = await client.pull({ model: 'tiny:slow', stream: true });
  for await (const part of parts) if (part.completed > 0) break;
  parts.abort();
  await setRate(0);
  assert.deepEqual(await client.pull({ model: 'tiny:slow' }), { status: 'success' });
});
