// What is not a model's: the node and its cluster (docs/control.md), sessions, records, health, the page.
import { answer, anyObject, count, either, flag, integer, list, number, only, orNull, ref, text } from './shapes.mjs';

const json = (schema) => ({ 'application/json': schema });
// Of the node's own requests: both sides may have more members than those that are named.
const more = (required, optional = {}) => ({ type: 'object', required: Object.keys(required), properties: { ...required, ...optional }, additionalProperties: true });
const some = (properties) => more({}, Object.fromEntries(Object.entries(properties).map(([name, schema]) => [name, orNull(schema)])));

const stage = more({ node: text, device: text, n_layers: count });
const demand = { context: count, streams: count, cells: count, kv: only('f16', 'f32', 'q8_0', 'q4_0'), speculate: only('lookup', 'off'), draft: text, draft_device: text, goal: text,
  precision: text, allow_precision: text,
  weights_memory: { oneOf: [text, count] }, score_weights: text, time_limit_s: count,
  rope: more({}, { scaling: only('none', 'linear', 'yarn'), scale: number, base: number, original_tokens: count }) };
const stages = list(stage);

const times = ['queue_ms', 'prefill_ms', 'decode_ms', 'slowest_stage_ms', 'back_ms', 'ttft_ms', 'total_ms', 'decode_tokens_per_s', 'prefill_tokens_per_s',
  'forecast_decode_tokens_per_s', 'joules'];
const record = answer({
  id: text, model: orNull(text), client: orNull(text), started_ms: count, outcome: orNull(text), prompt_tokens: orNull(count), cached_tokens: orNull(count),
  generated_tokens: count, driver: orNull(text), ...Object.fromEntries(times.map((name) => [name, orNull(number)])),
  stages: list(answer({ node: orNull(text), device: orNull(text), first_layer: count, n_layers: count, compute_ms: orNull(number), wait_ms: orNull(number),
    link_ms: orNull(number), link_bytes: orNull(count) })),
  pauses: list(answer({ at_ms: count, ms: count, over: flag, why: orNull(text) })),
});

const slots = { slots: answer({ total: count, busy: count }), queued: count };
const sharing = { cells: answer({ total: count, free: count, shared: count }), parked: count };
const health = either(answer({ status: only('ok') }), answer({ status: only('ok'), model: text, ...slots }, sharing),
  answer({ status: only('ok'), models: list(answer({ model: text, ...slots }, sharing)), ...slots }, sharing));

export const schemas = {
  Health: health,
  RequestRecord: record,
  RequestRecords: answer({ under_way: list(ref('RequestRecord')), finished: list(ref('RequestRecord')) }),
  Session: answer({ needs_token: flag, signed_in: flag, token: orNull(text), scopes: list(only('read', 'generate', 'models', 'admin')),
    node: answer({ id: orNull(text), name: orNull(text) }), cluster: flag, version: text, api_base: text }),
  Pass: answer({ pass: orNull(text), url: text, expires_ms: orNull(count) }),
  Status: more({ node: more({ id: text, name: text }), version: text, waiting: flag, cluster: orNull(anyObject) },
    { listening: list(text), models: list(anyObject), instances: list(anyObject) }),
  Nodes: more({ nodes: list(more({ id: text, name: text, self: flag, state: text, leads: flag, votes: flag, devices: list(anyObject) },
    { words: orNull(text), role: orNull(text), version: orNull(text), addresses: list(text), heard_ms: orNull(count),
      dial_address: orNull(text), dial_problem: orNull(text) })) }),
  Links: more({ links: list(anyObject) }),
  Alerts: more({ alerts: list(anyObject), cleared: list(anyObject) }, { kinds: list(anyObject), muted: list(anyObject) }),
};

const scope = (...scopes) => ({ scope: scopes });
const lines = (schema) => ({ 'application/x-ndjson': schema });
const bridge = (method, name, scopes, summary, body, line = anyObject) => ({
  method, path: `/api/${name}`, scope: [scopes], summary, ...(body ? { body: some(body) } : {}), answer: lines(either(line, ref('Error'))), node: true,
});
const page = (path, summary) => ({ method: 'get', path, scope: [], summary, answer: { '*/*': text } });

export const routes = [
  { method: 'get', path: '/health', scope: [], summary: 'Whether the server is up, and more where no token is needed', answer: json(ref('Health')) },
  { method: 'get', path: '/metrics', ...scope('read'), summary: 'Figures for Prometheus', answer: { 'text/plain': text } },
  { method: 'get', path: '/openapi.json', scope: [], summary: 'This document', answer: json(anyObject) },
  { method: 'get', path: '/api/requests', ...scope('read'), summary: 'What requests took', answer: json(ref('RequestRecords')) },
  { method: 'get', path: '/api/requests/{id}', ...scope('read'), summary: 'What one took', answer: json(ref('RequestRecord')) },
  { method: 'get', path: '/api/live', ...scope('read'), summary: 'The cluster as it is, and each change', answer: { 'text/event-stream': anyObject }, node: true },
  { method: 'get', path: '/api/history', ...scope('read'), summary: 'The last minute of a device', query: { node: text, device: text }, answer: json(anyObject), node: true },
  { method: 'get', path: '/api/session', scope: [], summary: 'What this client may do', answer: json(ref('Session')) },
  { method: 'post', path: '/api/session', scope: [], summary: 'Signs a browser in', body: { type: 'object', description: '{"token": …} or {"pass": …}; where no token is needed neither is read' }, answer: json(ref('Session')) },
  { method: 'delete', path: '/api/session', scope: [], summary: 'Signs it out', answer: json(answer({ signed_in: flag })) },
  { method: 'post', path: '/api/passes', ...scope('read', 'generate', 'models', 'admin'), summary: 'A pass that signs another browser in',
    body: some({ scopes: text, minutes: integer(1, 60) }), answer: json(ref('Pass')) },

  bridge('get', 'status', 'read', 'The node, its cluster, models and instances', null, ref('Status')),
  bridge('get', 'nodes', 'read', 'All nodes, and the machines that wait to be let in', null, ref('Nodes')),
  bridge('get', 'links', 'read', 'The links in each direction', null, ref('Links')),
  bridge('get', 'cluster', 'read', 'The cluster as `medley plan --cluster` reads it'),
  bridge('get', 'moves', 'read', 'Whether instances move for gain'),
  bridge('get', 'alerts', 'read', 'What is raised, and what was', null, ref('Alerts')),
  bridge('post', 'alerts', 'admin', 'Lines, times and silence of alerts', { kinds: flag, set: text, value: number, mute: text, unmute: text, seconds: count }),
  bridge('post', 'plan', 'read', 'How a model would be placed', { model: text, ...demand, without: list(text), with: list(anyObject), layers: stages }),
  bridge('post', 'place', 'models', 'Places a model', { model: text, ...demand, idle_s: count, layers: stages }),
  bridge('post', 'unload', 'models', 'Unloads an instance', { instance: text }),
  bridge('post', 'move', 'models', 'Moves an instance', { instance: text, to: stages }),
  bridge('post', 'moves', 'models', 'Whether instances move for gain', { on: flag }),
  bridge('post', 'add', 'models', 'Adds a file of this machine', { path: text }),
  bridge('post', 'forget', 'models', 'Forgets a model', { model: text }),
  bridge('post', 'where', 'models', "A file with a model's header", { model: text }),
  bridge('post', 'drain', 'admin', 'Empties a machine', { node: text, undo: flag }),
  bridge('post', 'invite', 'admin', 'A code for another machine', { minutes: count, role: only('admin', 'member') }),
  bridge('post', 'join', 'admin', 'Joins a cluster', { code: text, host: text }),
  bridge('post', 'admit', 'admin', 'Lets a machine in', { node: text, words: text }),
  bridge('post', 'remove', 'admin', 'Removes a machine', { node: text }),
  bridge('post', 'role', 'admin', 'Makes a machine an admin, or a member', { node: text, role: only('admin', 'member') }),
  bridge('post', 'leave', 'admin', 'Leaves the cluster; the node ends', {}),
  bridge('post', 'authority', 'admin', "The cluster's keys", { what: only('rotate', 'retire'), grace_s: count }),
  bridge('post', 'token', 'admin', 'Makes, lists and revokes tokens', { what: only('create', 'list', 'revoke'), name: text, scopes: text, models: list(text), places: list(text),
    expires_s: count, requests_per_min: count, streams: count, tokens_per_day: count }),
  bridge('get', 'audit', 'admin', 'The record of who did what'),
  bridge('post', 'audit', 'admin', 'How long entries are kept, or the last of them', { keep_days: count, last: count }),

  page('/', 'The page'),
  page('/assets/{file}', 'Its files'),
  page('/icon.svg', 'Its icon'),
  page('/manifest.webmanifest', 'Its manifest'),
];
for (const route of routes) if (route.path === '/api/audit' && route.method === 'get') route.query = { last: orNull(text) };
