// Starts the real `medley serve` on a free port of the loopback, and stops it as a user would.
// MEDLEY is the binary, MEDLEY_MODEL the model (meson sets both).
'use strict';
const { spawn } = require('node:child_process');
const net = require('node:net');
const OpenAI = require('openai');

const binary = process.env.MEDLEY ?? 'build/release/src/cli/medley';
const model = process.env.MEDLEY_MODEL ?? 'models/demo.gguf';
const devices = process.env.MEDLEY_DEVICES ?? 'cpu';

function run(args, env = process.env) {
  const child = spawn(binary, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
  const output = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'])
    child[name].setEncoding('utf8').on('data', (text) => (output[name] += text));
  const exit = new Promise((resolve) => child.once('close', (code, signal) => resolve({ code, signal, ...output })));
  return { child, output, exit };
}

// {port, base, client, model, stop}. The server must end with status 0: a sanitizer's report would change that.
async function start({ file = model, slots = 8, context = 512, args = [], apiKey = 'none', env = process.env } = {}) {
  const server = run(['serve', file, '--api', '127.0.0.1:0', '--devices', devices,
    '--slots', String(slots), '--context', String(context), ...args], env);
  const line = /listening on http:\/\/127\.0\.0\.1:(\d+)/;
  const port = await new Promise((resolve, reject) => {
    server.child.stdout.on('data', () => {
      const found = line.exec(server.output.stdout);
      if (found) resolve(Number(found[1]));
    });
    server.exit.then(({ code, stderr }) => reject(new Error(`medley serve ended with ${code}: ${stderr}`)));
  });
  const base = `http://127.0.0.1:${port}`;
  const client = new OpenAI({ baseURL: `${base}/v1`, apiKey, maxRetries: 0, timeout: 60000 });
  const listed = await client.models.list();
  return {
    port, base, client, model: listed.data[0].id,
    async stop() {
      server.child.kill('SIGTERM');
      const { code, signal, stderr } = await server.exit;
      if (code !== 0) throw new Error(`medley serve ended with ${code ?? signal}: ${stderr}`);
    },
  };
}

// Until /health says so: {"slots":{"busy":…},"queued":…}
async function waitForSlots(base, busy, ms = 10000) {
  const end = Date.now() + ms;
  for (;;) {
    const health = await (await fetch(`${base}/health`)).json();
    if (health.slots.busy === busy && (busy > 0 || health.queued === 0)) return;
    if (Date.now() > end) throw new Error(`${health.slots.busy} slots are busy, not ${busy}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

async function metric(base, name) {
  const text = await (await fetch(`${base}/metrics`)).text();
  const line = text.split('\n').find((l) => l.startsWith(`${name} `));
  return line && Number(line.split(' ')[1]);
}

// POST of any bytes: {status, json}
async function post(base, path, body) {
  const reply = await fetch(base + path, { method: 'POST', body, headers: { 'content-type': 'application/json' } });
  return { status: reply.status, json: await reply.json(), headers: reply.headers };
}

// Sends raw bytes on a connection of its own; the socket is the caller's.
function connect(port) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(port, '127.0.0.1', () => resolve(socket));
    socket.once('error', reject);
  });
}

module.exports = { start, run, post, connect, waitForSlots, metric, model, devices };
