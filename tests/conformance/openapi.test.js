// The document that the node serves against the node: requests are drawn from it, valid and broken, and each answer is
// checked against what the document says of it. For longer than the suite has time for, from the source tree:
//
//     ./dev shell env OPENAPI_SECONDS=600 [OPENAPI_SEED=N] node tests/conformance/openapi.test.js
'use strict';
const assert = require('node:assert');
const http = require('node:http');
const { before, after, test } = require('node:test');
const Ajv = require('ajv/dist/2020').default;
const { start } = require('./server.js');
const { startEcho } = require('./echo.js');
const { startNode } = require('./node.js');
const { Drawer, makeDice } = require('./draw.js');

const seconds = Number(process.env.OPENAPI_SECONDS ?? 12);
const firstSeed = Number(process.env.OPENAPI_SEED ?? 1);
const lanes = 4;
let server, echo, node;

before(async () => {
  server = await start({ context: 1536, args: ['--rope-scaling', 'yarn', '--rope-scale', '4'] });
  echo = await startEcho();
  node = await startNode();
});
after(async () => {
  await server.stop();
  await echo.stop();
  await node.stop();
});

// Answers may have more members in later versions, but this version has those that its document names.
function close(schema) {
  if (schema === null || typeof schema !== 'object') return schema;
  if (Array.isArray(schema)) return schema.map(close);
  const closed = Object.fromEntries(Object.entries(schema).map(([name, value]) => [name, close(value)]));
  if (closed.type === 'object' && closed.properties && !('additionalProperties' in closed)) closed.additionalProperties = false;
  return closed;
}

// Members that are null say nothing: where one is not known, some interfaces do not mind.
function withoutNulls(value) {
  if (value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) return value.map(withoutNulls);
  return Object.fromEntries(Object.entries(value).filter(([, one]) => one !== null).map(([name, one]) => [name, withoutNulls(one)]));
}

class Document {
  constructor(json) {
    this.json = json;
    this.requests = new Ajv({ strict: false, allErrors: false }).addSchema(json, 'document');
    this.answers = new Ajv({ strict: false, allErrors: false }).addSchema(this.closeAnswers(json), 'document');
    this.routes = Object.entries(json.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, operation]) => ({ method, path, operation })));
  }

  closeAnswers(json) {
    const schemas = Object.fromEntries(Object.entries(json.components.schemas).map(([name, schema]) => [name, close(schema)]));
    return { ...json, paths: close(json.paths), components: { ...json.components, schemas } };
  }

  at(parts) { return `document#/${parts.map((part) => encodeURIComponent(String(part).replaceAll('~', '~0').replaceAll('/', '~1'))).join('/')}`; }

  takes({ method, path }, body) { return this.requests.validate(this.at(['paths', path, method, 'requestBody', 'content', 'application/json', 'schema']), body); }

  // Why an answer is none of the document's; undefined: it is one.
  complaint({ method, path, operation }, { status, type, text }) {
    const { responses } = operation;
    const key = [String(status), `${String(status)[0]}XX`].find((name) => responses[name]);
    if (!key) return `no answer of ${status}`;
    const where = responses[key].$ref ? responses[key].$ref.slice(2).split('/') : ['paths', path, method, 'responses', key];
    const { content } = where.reduce((at, name) => at[name], this.json);
    const named = content[type] ? type : content['*/*'] && '*/*';
    if (!named) return `no answer of ${type}`;
    for (const value of this.valuesOf(named, text)) {
      if (value instanceof Error) return String(value);
      if (!this.answers.validate(this.at([...where, 'content', named, 'schema']), value)) return this.answers.errorsText().slice(0, 600);
    }
    return undefined;
  }

  valuesOf(type, text) {
    const parse = (json) => { try { return JSON.parse(json); } catch (error) { return error; } };
    if (type === 'application/json') return [parse(text)];
    if (type === 'application/x-ndjson') return text.split('\n').filter(Boolean).map(parse);
    if (type !== 'text/event-stream') return [text];
    const data = text.split('\n').filter((line) => line.startsWith('data: ')).map((line) => line.slice(6));
    return data.filter((line) => line !== '[DONE]').map(parse);
  }
}

// Each on a connection of its own: a server may close one that waits, just when it is used again.
function send(base, { method, path }, body, type = 'application/json', patience = 120000) {
  return new Promise((resolve, reject) => {
    const headers = body === undefined ? {} : { 'content-type': type, 'content-length': Buffer.byteLength(body) };
    const request = http.request(base + path, { method: method.toUpperCase(), headers, agent: false, timeout: patience }, (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (part) => { text += part; }).on('error', reject);
      answer.on('end', () => resolve({ status: answer.statusCode, type: (answer.headers['content-type'] ?? '').split(';')[0], text }));
    });
    request.on('error', reject).on('timeout', () => request.destroy(new Error(`${method} ${path}: no answer for ${patience} ms`)));
    request.end(body);
  });
}

const dataUrl = 'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==';

// What a client would say: schemas, grammars and names that mean something, and answers that are short.
function hintsFor(model) {
  const object = { type: 'object', properties: { a: { type: 'integer' }, b: { enum: ['x', 'y'] } }, required: ['a'], additionalProperties: false };
  return {
    model: [model, model, model, model, 'nobody'], name: ['weather', 'read_file'], max_tokens: [1, 2, 6], max_completion_tokens: [3], max_output_tokens: [1, 5],
    num_predict: [1, 4], n_predict: [1, 3], n: [1, 2], schema: [object, true, { type: 'array', uniqueItems: true }], parameters: [object, {}], input_schema: [object],
    guided_json: [object, '{"type":"integer"}'], guided_regex: ['[a-c]{2}', '(', 'x|y'], guided_choice: [['red', 'blue']], guided_grammar: ['root ::= "a" | "b"', 'root ::='],
    grammar: ['root ::= [0-9]'], arguments: ['{"a":1}', '', '{'], tool_choice: ['auto', 'none', 'required'], logit_bias: [{ 5: 1 }, { 7: -100 }],
    temperature: [0, 0.7, 1], repeat_penalty: [1, 1.1], dimensions: [64], scopes: ['read', 'read,generate', 'everything'], minutes: [1, 60], completion_window: ['24h', '30s'],
    url: [dataUrl], image_url: [dataUrl], media_type: ['image/png'], data: [dataUrl.split(',')[1]], images: [[], [dataUrl.split(',')[1]]],
  };
}

const lengths = { '/v1/chat/completions': 'max_tokens', '/v1/completions': 'max_tokens', '/v1/responses': 'max_output_tokens', '/v1/messages': 'max_tokens', '/completion': 'n_predict', '/infill': 'n_predict' };

// A story without an end would take the test's time.
function shorten(path, body) {
  const member = lengths[path];
  if (member) body[member] = Math.min(Math.max(body[member] ?? 4, 1), 6);
  if (member === 'max_tokens' && body.max_completion_tokens) body.max_completion_tokens = body.max_tokens;
  if (path === '/api/chat' || path === '/api/generate') body.options = { ...body.options, num_predict: 4 };
}

class Hunt {
  constructor(document, base, model, seed) {
    Object.assign(this, { document, base, counts: {}, complaints: [] });
    this.dice = makeDice(seed);
    this.drawer = new Drawer(document.json, this.dice, hintsFor(model));
    this.model = model;
  }

  drawBody(route) {
    const { schema } = route.operation.requestBody.content['application/json'];
    for (let i = 0; i < 50; i++) {
      const body = this.drawer.draw(schema);
      shorten(route.path, body);
      if (this.document.takes(route, body)) return body;
    }
    throw new Error(`${route.path}: nothing valid was drawn`);
  }

  drawRequest(route) {
    const { dice } = this;
    if (!route.operation.requestBody?.content['application/json']) return { body: undefined, isBroken: false };
    const body = this.drawBody(route);
    if (dice.chance(0.5)) return { body: JSON.stringify(body), isBroken: false };
    if (dice.chance(0.2)) return { body: this.drawer.breakText(JSON.stringify(body)), isBroken: false }; // or not: who knows
    const broken = this.drawer.breakValue(body);
    if (broken !== null && typeof broken === 'object' && !Array.isArray(broken) && this.document.takes(route, broken)) shorten(route.path, broken);
    return { body: JSON.stringify(broken), isBroken: !this.document.takes(route, broken) && !this.document.takes(route, withoutNulls(broken)) };
  }

  pathOf({ path }) {
    return path.replace(/\{(\w+)\}/g, (whole, name) => encodeURIComponent(this.dice.pick(name === 'name' ? [this.model, 'nobody'] : ['x', 'req-1', '%', 'é'])));
  }

  async once(route) {
    const { body, isBroken } = this.drawRequest(route);
    const asked = { method: route.method, path: this.pathOf(route) };
    const answer = await send(this.base, asked, body, this.dice.chance(0.02) ? 'text/plain' : undefined).catch((error) => ({ status: 0, type: '', text: String(error) }));
    const counted = this.counts[`${route.method} ${route.path}`] ??= { fine: 0, refused: 0, broken: 0 };
    if (isBroken) counted.broken++; else if (answer.status === 200) counted.fine++; else counted.refused++;
    const complaint = isBroken && answer.status === 200 ? 'accepted, though the document says that it is broken' : this.document.complaint(route, answer);
    if (complaint) this.complaints.push({ route: `${route.method} ${route.path}`, complaint, status: answer.status, body: body?.slice(0, 1000), answer: answer.text.slice(0, 1000) });
  }
}

async function hunt(base, model, keeps) {
  const document = new Document(await (await fetch(`${base}/openapi.json`)).json());
  const routes = document.routes.filter(keeps), end = Date.now() + seconds * 1000 / 3;
  const hunts = Array.from({ length: lanes }, (_, lane) => new Hunt(document, base, model, firstSeed * lanes + lane));
  await Promise.all(hunts.map(async (one) => {
    for (let i = 0; Date.now() < end || i < routes.length; i++) await one.once(routes[(i + one.dice.below(2)) % routes.length]);
  }));
  const counts = {};
  for (const one of hunts) for (const [route, { fine, refused, broken }] of Object.entries(one.counts)) {
    const sum = counts[route] ??= { fine: 0, refused: 0, broken: 0 };
    sum.fine += fine; sum.refused += refused; sum.broken += broken;
  }
  if (seconds > 60 || process.env.OPENAPI_TELL) console.table(counts);
  const complaints = hunts.flatMap((one) => one.complaints);
  if (complaints.length && process.env.OPENAPI_TELL) console.table(complaints.map(({ route, complaint, status, body }) => ({ route, status, complaint: complaint.slice(0, 80), body: body?.slice(0, 400) })));
  assert.deepEqual(complaints.slice(0, 20), [], `${complaints.length} answers are not the document's (seed ${firstSeed})`);
  return counts;
}

const isPage = ({ path }) => ['/', '/assets/{file}', '/icon.svg', '/manifest.webmanifest'].includes(path);

test('every answer of a server with a model is one that the document has', async () => {
  const counts = await hunt(server.base, server.model, (route) => !isPage(route));
  for (const [route, { fine, refused }] of Object.entries(counts)) {
    if (/^post \/(v1\/rerank|infill)/.test(route) || /^post \/v1\/(files|batches)|\/v1\/(files|batches)\//.test(route) || /\/api\/(?!chat|generate|tags|show|ps|version|requests$)/.test(route)) continue; // it is no reranker, fills nothing in, has no such file, and no cluster
    if (fine + refused >= 30) assert.ok(fine > 0, `${route}: none of ${fine + refused} valid requests was done`);
  }
});

test('and so is every answer of a model that says what it is told', async () => {
  await hunt(echo.base, echo.model, ({ path }) => ['/v1/chat/completions', '/v1/responses', '/v1/messages', '/v1/messages/count_tokens', '/infill', '/api/chat', '/api/generate'].includes(path));
});

// Not those that end the node, close its door, or change who it is; nor what goes on until the cluster, or a hub, has done something,
// which may be never.
const ends = ['leave', 'token', 'authority', 'remove', 'role', 'join', 'live', 'place', 'move', 'pull'].map((name) => `/api/${name}`);

test('and so is every answer of a node', async () => {
  const add = await send(node.base, { method: 'post', path: '/api/add' }, JSON.stringify({ path: node.file }));
  assert.equal(add.status, 200, add.text);
  const counts = await hunt(node.base, JSON.parse(add.text).model, ({ path, operation }) => operation['x-medley-node'] && !ends.includes(path));
  for (const name of ['status', 'nodes', 'links', 'cluster', 'moves', 'alerts', 'audit']) assert.equal(counts[`get /api/${name}`].refused, 0, name);
});
