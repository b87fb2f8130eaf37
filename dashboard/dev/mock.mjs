// The contract between page and node, with made-up machines behind it: for `npm run dev` without a
// node, and for tests that want 64 machines. It forecasts nothing: plans are drawn by a rule of
// thumb.
import { drift, worlds } from './worlds.mjs';

const SCOPES = ['read', 'generate', 'models', 'admin'];

const json = (response, status, value) => {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(value));
};
const fail = (response, status, code, text) => json(response, status, { error: { code, text, message: text } });

async function bodyOf(request) {
  let text = '';
  for await (const piece of request) text += piece;
  return text ? JSON.parse(text) : {};
}

/** Layers by memory; a machine may be left out, a split may be given. */
function plan(world, ask) {
  const model = world.models[ask.model];
  if (!model) return null;
  const out = new Set(ask.without ?? []);
  const all = Object.values(world.nodes).flatMap((node) =>
    Object.entries(node.devices ?? {}).map(([id, one]) => ({ node: node.name, device: id, up: node.state === 'up', free: one.free_bytes, speed: one.decode_bytes_per_s })),
  );
  for (const extra of ask.with ?? []) {
    const like = all.find((one) => one.node === extra.node && one.device === extra.device);
    if (like) all.push({ ...like, device: `${like.device}+` });
  }
  const usable = all.filter((one) => one.up && !out.has(one.node)).sort((a, b) => b.speed - a.speed);
  const per = model.bytes / model.n_layers + (ask.context ?? 4096) * (ask.streams ?? 1) * 4096;
  const stages = [];
  let left = model.n_layers;
  const take = (one, n) => {
    stages.push({ node: one.node, device: one.device, first_layer: model.n_layers - left, layers: n, memory_bytes: Math.round(n * per), memory_available_bytes: one.free, decode_s: (n * per) / one.speed, part_of_round: 0, hop_s: stages.length ? 0.0003 : 0, measured: true, link: stages.length ? '0.31 ms (ethernet)' : null });
    left -= n;
  };
  for (const given of ask.layers ?? []) {
    const one = usable.find((each) => each.node === given.node && each.device === given.device);
    if (one && given.n_layers > 0) take(one, given.n_layers);
  }
  if (!ask.layers) for (const one of usable) if (left > 0 && one.free > per) take(one, Math.min(left, Math.floor(one.free / per)));
  const demand = { goal: ask.goal ?? 'latency', context: ask.context ?? 4096, streams: ask.streams ?? 1, kv_type: 'f16' };
  const used = new Set(stages.map((one) => `${one.node}/${one.device}`));
  const devices = all.map((one) => ({
    node: one.node,
    device: one.device,
    memory_bytes: one.free,
    state: out.has(one.node) ? 'excluded' : used.has(`${one.node}/${one.device}`) ? 'used' : 'costs_time',
    why: used.has(`${one.node}/${one.device}`) ? null : out.has(one.node) ? 'you left it out' : 'with it every token would take 3 ms longer',
  }));
  const common = { model: { name: ask.model, layers: model.n_layers, weight_bytes: model.bytes }, demand, devices, policies: [] };
  if (left > 0)
    return { ...common, outcome: 'infeasible', possible: false, problem: 'the model does not fit', infeasible: { why: 'the model and its caches do not fit', needed_bytes: per * model.n_layers, available_bytes: usable.reduce((sum, one) => sum + one.free, 0), missing_bytes: Math.round(left * per), remedies: [{ remedy: 'context', kv_type: null, streams: demand.streams, context: 2048, memory_bytes: 0, least: true, answer: 'possible', decode_tokens_per_s: 4.2 }] }, what_if: [] };
  const round = stages.reduce((sum, one) => sum + one.decode_s + one.hop_s, 0);
  for (const one of stages) one.part_of_round = one.decode_s / round;
  const slow = stages.reduce((a, b) => (b.decode_s > a.decode_s ? b : a));
  return {
    ...common,
    outcome: 'placed',
    possible: true,
    best: { decode_tokens_per_s: 1 / round, decode_spread: 0.08, prefill_tokens_per_s: 24 / round, stages, speeds: 'measured', proved_optimal: !ask.layers, bottleneck: { limit: 'bandwidth', stage: stages.indexOf(slow), part: slow.part_of_round, text: `${slow.node}/${slow.device}'s memory bandwidth (${Math.round(slow.part_of_round * 100)} % of a token's time)` } },
    what_if: [...new Set(stages.map((one) => one.node))].map((node, i) => ({ change: 'without_node', node, device: null, answer: i ? 'possible' : 'impossible', proved: true, decode_tokens_per_s: i ? 0.7 / round : null })),
  };
}

function history(world, node, id) {
  const one = world.nodes[node]?.devices?.[id];
  if (!one) return null;
  const wave = (value, swing) => (value === null ? null : Array.from({ length: 120 }, (_, i) => value + swing * Math.sin(i / 9)));
  return {
    period_ms: 500,
    end_ms: Date.now(),
    temperature_c: wave(one.temperature_c, 4) ?? Array(120).fill(null),
    use_share: wave(one.use_share, 0.04),
    power_w: wave(one.power_w, 12) ?? Array(120).fill(null),
    clock_mhz: Array(120).fill(one.clock_mhz),
    free_bytes: Array(120).fill(one.free_bytes),
    predicted_c: one.predicted_c === null ? [] : Array.from({ length: 60 }, (_, i) => one.temperature_c + ((one.predicted_c - one.temperature_c) * i) / 60),
  };
}

function requests() {
  const now = Date.now();
  const one = (id, more) => ({ id, model: 'llama-3.3-70b-q4', client: 'phone', started_ms: now - 42000, outcome: 'done', prompt_tokens: 812, cached_tokens: 640, generated_tokens: 244, queue_ms: 40, ttft_ms: 620, total_ms: 14800, decode_tokens_per_s: 17.2, prefill_tokens_per_s: 402, forecast_decode_tokens_per_s: 17.8, driver: 'n0', stages: [
    { node: 'n0', device: 'metal0', first_layer: 0, n_layers: 46, compute_ms: 8200, wait_ms: 5100, link_ms: 240, link_bytes: 3.9e6 },
    { node: 'n1', device: 'cuda0', first_layer: 46, n_layers: 28, compute_ms: 4300, wait_ms: 9000, link_ms: 20, link_bytes: 3.9e6 },
    { node: 'n1', device: 'cuda1', first_layer: 74, n_layers: 6, compute_ms: 1700, wait_ms: 11600, link_ms: 210, link_bytes: 2e4 },
  ], pauses: [], joules: 3100, ...more });
  return {
    under_way: [one('chatcmpl-live', { outcome: null, started_ms: now - 3000, total_ms: 3000, generated_tokens: 41 })],
    finished: [
      one('chatcmpl-1', {}),
      one('chatcmpl-2', { started_ms: now - 190000, pauses: [{ at_ms: now - 190000 + 5200, ms: 1400, why: 'attic was lost; its layers moved to studio' }], total_ms: 19000 }),
      one('chatcmpl-3', { started_ms: now - 400000, outcome: 'failed', generated_tokens: 0, total_ms: 900, ttft_ms: null }),
    ],
  };
}

const audit = () => [
  { number: 12, time_ms: Date.now() - 60000, actor: 'alice', text: 'placed llama-3.3-70b-q4' },
  { number: 11, time_ms: Date.now() - 660000, actor: 'the page at 192.168.1.30', text: 'invited a machine' },
];

/** `options`: {scenario, token, scopes}. With a token, the page must sign in with it. */
export function createMock(options = {}) {
  const world = worlds[options.scenario ?? 'home']();
  const scopes = options.scopes ?? SCOPES;
  const calls = []; // what was asked, for tests
  let signedIn = !options.token;
  let tick = 0;

  const session = () => ({ needs_token: Boolean(options.token), signed_in: Boolean(options.token) && signedIn, token: options.token ? 'test' : null, scopes: signedIn ? scopes : [], node: { id: 'n0', name: 'studio' }, version: '0.1.0', api_base: '/' });

  function live(request, response) {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const say = (event, value) => response.write(`event: ${event}\ndata: ${JSON.stringify(value)}\n\n`);
    say('snapshot', world);
    const now = Date.now();
    ['studio founded the cluster', 'tower joined the cluster', 'alice asked for llama-3.3-70b-q4', 'llama-3.3-70b-q4 is ready', 'attic is down'].forEach((text, i) => say('event', { index: i + 1, time_ms: now - (5 - i) * 240000, by: 'studio', actor: i === 2 ? 'alice' : null, text }));
    const timer = setInterval(() => say('change', drift(world, ++tick)), 500);
    request.on('close', () => clearInterval(timer));
  }

  async function place(response, body) {
    response.writeHead(200, { 'content-type': 'application/x-ndjson' });
    for (const state of ['placing', 'loading']) {
      response.write(`${JSON.stringify({ id: body.model, model: body.model, state })}\n`);
      await new Promise((done) => setTimeout(done, 400));
    }
    response.end(`${JSON.stringify({ ready: { instance: body.model, model: body.model, state: 'ready', stages: [] } })}\n`);
  }

  return {
    world,
    calls,
    async handle(request, response) {
      const url = new URL(request.url, 'http://mock');
      if (url.pathname === '/v1/models')
        return json(response, 200, { data: Object.keys(world.models).map((id) => ({ id })) }), true;
      const name = url.pathname.replace(/^\/api\//, '');
      if (!url.pathname.startsWith('/api/')) return false;
      if (name === 'session') {
        if (request.method === 'POST') {
          const body = await bodyOf(request);
          if (body.token !== options.token && !body.pass) return fail(response, 401, 'unauthorized', 'No token is like this one. Is all of it there?'), true;
          signedIn = true;
        } else if (request.method === 'DELETE') signedIn = !options.token;
        return json(response, 200, session()), true;
      }
      if (!signedIn) return fail(response, 401, 'unauthorized', 'Sign in first.'), true;
      if (name === 'live') return live(request, response), true;
      if (name === 'history') {
        const found = history(world, url.searchParams.get('node'), url.searchParams.get('device'));
        return found ? json(response, 200, found) : fail(response, 404, 'not_found', 'There is no such device.'), true;
      }
      if (name === 'requests') return json(response, 200, requests()), true;
      if (name === 'alerts') return json(response, 200, { alerts: Object.values(world.alerts), cleared: [] }), true;
      if (name === 'audit') return response.end(audit().map((one) => JSON.stringify(one)).join('\n')), true;
      if (request.method !== 'POST') return fail(response, 404, 'not_found', 'There is no such thing here.'), true;
      const body = await bodyOf(request);
      calls.push({ name, body });
      if (name === 'plan') {
        const answer = plan(world, body);
        return answer ? json(response, 200, answer) : fail(response, 404, 'not_found', 'The cluster has no such model.'), true;
      }
      if (name === 'place') return await place(response, body), true;
      if (name === 'invite') return json(response, 200, { code: '7K2M-9QXD-44TB', expires_s: 600, role: body.role ?? 'member', replaces_code: calls.filter((call) => call.name === 'invite').length > 1 }), true;
      if (name === 'passes') return json(response, 200, { pass: 'p4ss', url: 'http://192.168.1.20:8080', expires_ms: Date.now() + 600000 }), true;
      if (name === 'token' && body.what === 'list') return json(response, 200, { tokens: [{ name: 'phone', id: 't1', scopes: 'read,generate', created_ms: Date.now() - 864e5, expires_ms: 0, expired: false, models: [], places: [] }] }), true;
      if (name === 'token' && body.what === 'create') return json(response, 200, { token: 'medley-0123456789abcdef', name: body.name }), true;
      if (name === 'admit') {
        if (body.words !== 'amber river tulip seven') return fail(response, 409, 'invalid', 'These are not the words of that machine.'), true;
        return json(response, 200, { admitted: body.node }), true;
      }
      return json(response, 200, { done: name }), true;
    },
  };
}
