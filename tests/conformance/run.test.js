// `medley run` with a grammar or a schema.
'use strict';
const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { before, after, test } = require('node:test');
const Ajv = require('ajv/dist/2020').default;
const { run, model, devices } = require('./server.js');

const schema = { type: 'object', required: ['city', 'n'], additionalProperties: false,
  properties: { city: { type: 'string', maxLength: 6 }, n: { type: 'integer', minimum: 1, maximum: 9 } } };
let folder, gbnf, json;

before(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'medley-run-'));
  gbnf = path.join(folder, 'yes.gbnf');
  json = path.join(folder, 'city.json');
  fs.writeFileSync(gbnf, 'root ::= ("yes" | "no") ", " [a-z]{3}\n');
  fs.writeFileSync(json, JSON.stringify(schema));
});
after(() => fs.rmSync(folder, { recursive: true, force: true }));

const answer = (...options) => run(['run', model, '--here', '--devices', devices, '-p', 'Say it.', '--temp', '1', ...options]).exit;

test('an answer is derived from the grammar', async () => {
  for (const seed of ['1', '2', '3']) {
    const { code, stdout, stderr } = await answer('--grammar', gbnf, '--seed', seed);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /^(yes|no), [a-z]{3}\n$/);
  }
});

test('an answer is valid under the schema', async () => {
  const valid = new Ajv().compile(schema);
  for (const seed of ['1', '2', '3']) {
    const { code, stdout, stderr } = await answer('--json-schema', json, '--seed', seed, '--json');
    assert.equal(code, 0, stderr);
    const { text, finish_reason: reason } = JSON.parse(stdout);
    assert.equal(reason, 'stop');
    assert.ok(valid(JSON.parse(text)), text);
  }
});

test('what cannot be followed is named', async () => {
  for (const [options, words] of [
    [['--grammar', json], /city\.json: line 1: /],
    [['--json-schema', gbnf], /yes\.gbnf: /],
    [['--grammar', path.join(folder, 'none')], /none: No such file/],
    [['--grammar', gbnf, '--json-schema', json], /exclude each other/],
    [['--grammar', gbnf, '--context-shift'], /excludes --grammar/],
  ]) {
    const { code, stderr } = await answer(...options);
    assert.notEqual(code, 0);
    assert.match(stderr, words);
  }
});
