// The TypeScript client: its types are those of the document, it compiles, and it and its example speak with a server.
'use strict';
const assert = require('node:assert');
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { pathToFileURL } = require('node:url');
const { before, after, test } = require('node:test');
const { start } = require('./server.js');

const source = path.join(__dirname, '..', '..', 'clients', 'typescript');
let server, built, client;

async function runNode(...args) {
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => { said += text; });
  const code = await new Promise((resolve) => child.once('close', resolve));
  return { code, said };
}

before(async () => {
  server = await start();
  built = fs.mkdtempSync(path.join(os.tmpdir(), 'medley-typescript-'));
  const { code, said } = await runNode(require.resolve('typescript/bin/tsc'), '-p', source, '--outDir', built);
  assert.equal(code, 0, said);
  fs.copyFileSync(path.join(source, 'package.json'), path.join(built, 'package.json'));
  client = await import(pathToFileURL(path.join(built, 'client.js')));
});
after(async () => {
  fs.rmSync(built, { recursive: true, force: true });
  await server.stop();
});

const messages = [{ role: 'user', content: 'Tell me a story.' }];
const open = () => new client.Medley({ base: server.base });

test('the types are those of the document that is served', async () => {
  const { makeTypes } = await import(pathToFileURL(path.join(source, 'generate.mjs')));
  const document = await (await fetch(`${server.base}/openapi.json`)).json();
  const kept = fs.readFileSync(path.join(source, 'openapi.ts'), 'utf8');
  assert.ok(await makeTypes(document) === kept, 'clients/typescript/openapi.ts is not of this version: see the README.md beside it');
});

test('a chat, whole and streamed', async () => {
  const ask = { model: server.model, messages, max_tokens: 12, temperature: 0 };
  const whole = await open().post('/v1/chat/completions', ask);
  let text = '';
  for await (const chunk of open().stream('/v1/chat/completions', ask)) text += chunk.choices[0]?.delta.content ?? '';
  assert.ok(text.length > 0);
  assert.equal(text, whole.choices[0].message.content);
});

test('the pieces of other interfaces', async () => {
  const types = [];
  for await (const event of open().stream('/v1/messages', { model: server.model, messages, max_tokens: 4 })) types.push(event.type);
  assert.deepEqual([types[0], types.at(-1)], ['message_start', 'message_stop']);
  let text = '', last;
  for await (last of open().stream('/api/generate', { model: server.model, prompt: 'Tell me.', options: { num_predict: 4 } })) text += last.response;
  assert.ok(text.length > 0 && last.done);
});

test('names in paths, texts, and answers that are no JSON', async () => {
  const found = await open().get('/v1/models/{name}', { path: { name: server.model } });
  assert.equal(found.id, server.model);
  assert.match(await open().get('/metrics'), /^# /);
  const { tokens } = await open().post('/tokenize', { content: 'fox' });
  assert.equal((await open().post('/detokenize', { tokens })).content, 'fox');
});

test('what is refused is thrown, with its status, code and field', async () => {
  const refused = (asked, wanted) => assert.rejects(asked, (error) => {
    assert.ok(error instanceof client.MedleyError);
    for (const [name, value] of Object.entries(wanted)) assert.equal(error[name], value);
    return error.message.length > 0;
  });
  await refused(open().post('/v1/chat/completions', { model: 'nobody', messages }), { status: 404, code: 'model_not_found', param: 'model' });
  await refused(open().post('/api/chat', { model: 'nobody', messages }), { status: 404 });
  await refused(open().stream('/v1/messages', { model: server.model, messages, max_tokens: 0 }).next(), { status: 400 });
  await refused(open().get('/api/status'), { status: 404, code: 'no_cluster' });
});

test('the example tells a story', async () => {
  const { code, said } = await runNode(path.join(built, 'example.js'), server.base, 'Tell me a story about a fox.');
  assert.equal(code, 0, said);
  assert.ok(said.trim().length > 40, said);
  const failed = await runNode(path.join(built, 'example.js'), `${server.base}/nowhere`);
  assert.equal(failed.code, 1);
  assert.match(failed.said, /^404: /);
});
