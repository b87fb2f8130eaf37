// The examples of medley/client.h against a real node.
'use strict';
const assert = require('node:assert');
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { before, after, test } = require('node:test');
const { run, model, devices, waitForSlots, start } = require('./server.js');

const chat = process.env.MEDLEY_CHAT ?? 'build/release/examples/example-client-chat';
const forecast = process.env.MEDLEY_FORECAST ?? 'build/release/examples/example-client-forecast';
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'medley-client-'));
let server;

before(async () => {
  server = await start();
});
after(async () => {
  await server.stop();
  fs.rmSync(folder, { recursive: true });
});

function program(binary, args, env = {}) {
  const child = spawn(binary, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  const output = { out: '', err: '' };
  child.stdout.setEncoding('utf8').on('data', (text) => (output.out += text));
  child.stderr.setEncoding('utf8').on('data', (text) => (output.err += text));
  return { child, output, exit: new Promise((resolve) => child.once('close', (code) => resolve({ code, ...output }))) };
}

test('a chat is what the API answers', async () => {
  const messages = [{ role: 'user', content: 'Tell me a story about a fox.' }];
  const whole = await server.client.chat.completions.create({ model: server.model, messages, max_tokens: 100, temperature: 0 });
  const { code, out, err } = await program(chat, [`${server.base}/`, server.model, messages[0].content]).exit;
  assert.equal(code, 0, err);
  const { content } = whole.choices[0].message;
  assert.equal(out, `${content}\n(${whole.choices[0].finish_reason} after ${whole.usage.completion_tokens} tokens)\n`);
});

test('errors are the node\'s', async () => {
  let { code, err } = await program(chat, [server.base, 'nobody', 'x']).exit;
  assert.equal(code, 1);
  assert.match(err, /nobody/);
  ({ code, err } = await program(chat, ['127.0.0.1:1', 'x', 'x']).exit);
  assert.equal(code, 1);
  assert.match(err, /begins with http/);
  ({ code, err } = await program(chat, ['http://127.0.0.1:1', 'x', 'x']).exit);
  assert.equal(code, 1);
  assert.match(err, /127\.0\.0\.1:1/);
  const { out } = await program(forecast, [server.base]).exit; // `medley serve` has no cluster
  assert.match(out, /medley up/);
});

test('who interrupts it ends the node\'s work', async () => {
  const asking = program(chat, [server.base, server.model, 'Go on and on.']);
  await new Promise((resolve) => asking.child.stdout.once('data', resolve));
  asking.child.kill('SIGINT');
  const { code, out, err } = await asking.exit;
  await waitForSlots(server.base, 0);
  if (code === 0) assert.match(out, /after \d+ tokens/); // it was through before
  else assert.match(err, /cancelled/);
});

test('a node of a cluster, over TLS and with a token', async () => {
  const port = await new Promise((resolve) => {
    const socket = net.createServer().listen(0, '127.0.0.1', () => {
      const chosen = socket.address().port;
      socket.close(() => resolve(chosen));
    });
  });
  const state = { ...process.env, MEDLEY_STATE_DIR: path.join(folder, 'state') };
  const node = run(['up', '--new', '--no-discovery', '--name', 'tower', '--listen', `127.0.0.1:${port}`,
    '--api', '127.0.0.1:0', '--tls', 'on', '--devices', devices], state);
  const made = async (...args) => {
    const { code, stdout, stderr } = await run(args, state).exit;
    assert.equal(code, 0, stderr);
    return stdout;
  };
  try {
    const base = await new Promise((resolve, reject) => {
      node.child.stdout.on('data', () => {
        const found = /listening on (https:\/\/127\.0\.0\.1:\d+)/.exec(node.output.stdout);
        if (found) resolve(found[1]);
      });
      node.exit.then(({ code, stderr }) => reject(new Error(`medley up ended with ${code}: ${stderr}`)));
    });
    for (const end = Date.now() + 30000; ;) { // until the cluster is founded
      if ((await run(['add', path.resolve(model)], state).exit).code === 0) break;
      assert.ok(Date.now() < end, 'no cluster was founded');
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    const authority = path.join(folder, 'ca.pem');
    await made('ca', 'export', '--out', authority);
    const secret = /medley_\S+/.exec(await made('token', 'create', 'robot', '--scope', 'read,generate'))[0];
    let last;
    for (const end = Date.now() + 30000; ;) { // its speed is measured first
      last = await program(forecast, [base, authority], { MEDLEY_TOKEN: secret }).exit;
      if (/tokens\/s, \d+ layers on tower\/cpu/.test(last.out)) break;
      assert.ok(Date.now() < end, JSON.stringify(last));
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    last = await program(forecast, [base, authority]).exit;
    assert.equal(last.code, 1);
    assert.match(last.err, /token/);
    last = await program(forecast, [base], { MEDLEY_TOKEN: secret }).exit; // the authority is not the system's
    assert.equal(last.code, 1);
    assert.match(last.err, /certificate/i);
  } finally {
    node.child.kill('SIGTERM');
    const { code, signal, stderr } = await node.exit;
    assert.equal(code, 0, `${signal} ${stderr}`);
  }
});
