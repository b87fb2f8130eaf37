// The `openai` client over https, as docs/api-tls.md says: with the authority of `medley ca export`
// it works, streams included; without it, it refuses.
'use strict';
const assert = require('node:assert');
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { before, after, test } = require('node:test');
const { run, devices, model } = require('./server.js');

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'medley-tls-'));
const state = { ...process.env, MEDLEY_STATE_DIR: path.join(folder, 'state') };
const authority = path.join(folder, 'ca.pem');
let server, base;

before(async () => {
  server = run(['serve', model, '--api', '127.0.0.1:0', '--tls', 'on', '--devices', devices], state);
  base = await new Promise((resolve, reject) => {
    server.child.stdout.on('data', () => {
      const found = /listening on (https:\/\/127\.0\.0\.1:\d+)/.exec(server.output.stdout);
      if (found) resolve(found[1]);
    });
    server.exit.then(({ code, stderr }) => reject(new Error(`medley serve ended with ${code}: ${stderr}`)));
  });
  const exported = await run(['ca', 'export', '--out', authority], state).exit;
  assert.equal(exported.code, 0, exported.stderr);
});

after(async () => {
  server.child.kill('SIGTERM');
  const { code } = await server.exit;
  fs.rmSync(folder, { recursive: true });
  assert.equal(code, 0);
});

// A program of its own, because Node reads NODE_EXTRA_CA_CERTS when it starts.
function client(variables) {
  const script = `
    const OpenAI = require('openai');
    const client = new OpenAI({ baseURL: '${base}/v1', apiKey: 'none', maxRetries: 0 });
    (async () => {
      const id = (await client.models.list()).data[0].id;
      const asked = { model: id, max_tokens: 8, temperature: 0, messages: [{ role: 'user', content: 'Hello' }] };
      const whole = await client.chat.completions.create(asked);
      let text = '';
      for await (const chunk of await client.chat.completions.create({ ...asked, stream: true }))
        text += chunk.choices[0]?.delta?.content ?? '';
      console.log(JSON.stringify({ whole: whole.choices[0].message.content, text }));
    })().catch((error) => { console.error(error.cause?.code ?? error.code ?? error.message, error.cause?.cause?.code); process.exit(3); });`;
  const env = { ...process.env, ...variables };
  const child = spawn(process.execPath, ['-e', script], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  const output = { out: '', err: '' };
  child.stdout.setEncoding('utf8').on('data', (text) => (output.out += text));
  child.stderr.setEncoding('utf8').on('data', (text) => (output.err += text));
  return new Promise((resolve) => child.once('close', (code) => resolve({ code, ...output })));
}

test('with the exported authority', async () => {
  const { code, out, err } = await client({ NODE_EXTRA_CA_CERTS: authority });
  assert.equal(code, 0, err);
  const { whole, text } = JSON.parse(out);
  assert.ok(whole.length > 0);
  assert.equal(text, whole);
});

test('without it', async () => {
  const { code, err } = await client({ NODE_EXTRA_CA_CERTS: '' });
  assert.equal(code, 3);
  assert.match(err, /SELF_SIGNED|UNABLE_TO|CERT/i);
});
