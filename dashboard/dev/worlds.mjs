// Made-up clusters for developing and testing the page without nodes: views as /api/live sends them.
const GIB = 2 ** 30;

const machine = (name, devices, more = {}) => ({
  name,
  state: 'up',
  role: 'member',
  leads: false,
  votes: true,
  version: '0.1.0',
  addresses: ['192.168.1.20:7979'],
  problem: null,
  words: null,
  draining: false,
  heard_ms: 0,
  load: {
    cpu_share: 0.2,
    memory_bytes: 32 * GIB,
    memory_free_bytes: 20 * GIB,
    memory_pressure_share: 0.01,
    battery_percent: null,
    charging: null,
    uptime_s: 86400,
  },
  devices,
  ...more,
});

const device = (name, memory, more = {}) => ({
  name,
  kind: 'gpu',
  vendor: 'nvidia',
  backend: 'cuda',
  memory_bytes: memory * GIB,
  free_bytes: memory * GIB * 0.92,
  temperature_c: 48,
  use_share: 0.02,
  power_w: 24,
  clock_mhz: 1400,
  duty_share: 1,
  limit_c: 83,
  predicted_c: 48,
  seconds_to_limit: null,
  governor: 'free',
  decode_bytes_per_s: 3e11,
  calibrated: true,
  problem: null,
  stages: 0,
  ...more,
});

const unknown = { temperature_c: null, power_w: null, clock_mhz: null, predicted_c: null };

function linksOf(ids, draw) {
  const links = {};
  for (const from of ids)
    for (const to of ids) if (from !== to) links[`${from}>${to}`] = { from, to, ...draw(from, to) };
  return links;
}

const base = (more) => ({
  time_ms: Date.now(),
  self: 'n0',
  version: '0.1.0',
  cluster: {
    id: 'c0ffee',
    leader: 'n0',
    generation: 1,
    term: 3,
    voters: 3,
    problem: null,
    role: 'admin',
    waiting: false,
  },
  nodes: {},
  links: {},
  models: {},
  instances: {},
  alerts: {},
  totals: { devices: 0, nodes_up: 0, summary: null },
  ...more,
});

export function emptyWorld() {
  return base({
    nodes: {
      n0: machine('studio', { cpu: device('Ryzen 9 5950X', 64, { kind: 'cpu', backend: 'cpu', vendor: 'amd', ...unknown }) }, { role: 'admin', leads: true }),
    },
    totals: { devices: 1, nodes_up: 1, memory_bytes: 64 * GIB, free_bytes: 58 * GIB, summary: '1 machine with 1 device and 64 GiB.' },
  });
}

export function homeWorld() {
  const nodes = {
    n0: machine('studio', {
      metal0: device('Apple M2 Ultra', 96, { vendor: 'apple', backend: 'metal', free_bytes: 62 * GIB, temperature_c: 61, use_share: 0.72, stages: 1, decode_bytes_per_s: 6.6e11 }),
    }, { role: 'admin', leads: true }),
    n1: machine('tower', {
      cuda0: device('NVIDIA GeForce RTX 4090', 24, { free_bytes: 3 * GIB, temperature_c: 78, use_share: 0.94, power_w: 310, predicted_c: 81, seconds_to_limit: 90, governor: 'lower precision', stages: 2, decode_bytes_per_s: 9e11 }),
      cuda1: device('NVIDIA GeForce RTX 3060', 12, { free_bytes: 5 * GIB, temperature_c: 64, use_share: 0.5, power_w: 110, stages: 1 }),
      cpu: device('Ryzen 7 5800X', 32, { kind: 'cpu', backend: 'cpu', vendor: 'amd', ...unknown, free_bytes: 25 * GIB }),
    }, { role: 'admin' }),
    n2: machine('laptop', {
      cpu: device('Core i7-1260P', 16, { kind: 'cpu', backend: 'cpu', vendor: 'intel', free_bytes: 9 * GIB, temperature_c: 71 }),
    }, { load: { cpu_share: 0.4, battery_percent: 62, charging: false, memory_bytes: 16 * GIB, memory_free_bytes: 9 * GIB } }),
    n3: machine('attic', {
      vulkan0: device('AMD Radeon RX 6800', 16, { vendor: 'amd', backend: 'vulkan', free_bytes: 15 * GIB }),
    }, { state: 'down', heard_ms: 840000 }),
    n4: machine('pi', { cpu: device('Raspberry Pi 5', 8, { kind: 'cpu', backend: 'cpu', vendor: 'arm', ...unknown, calibrated: false }) }),
    n9: { name: 'guest-mac', state: 'waiting', role: null, words: 'amber river tulip seven', addresses: ['192.168.1.77:7979'], devices: {} },
  };
  const ids = ['n0', 'n1', 'n2', 'n3', 'n4'];
  const links = linksOf(ids, (a, b) => {
    const pair = [a, b].sort().join('');
    const wifi = pair.includes('n2');
    return {
      class: pair === 'n0n1' ? 'thunderbolt' : wifi ? 'wifi' : 'ethernet',
      up: !pair.includes('n3'),
      latency_ns: pair === 'n0n1' ? 82e3 : wifi ? 4.3e6 : 310e3,
      jitter_ns: wifi ? 2e6 : 2e4,
      loss_ppm: wifi ? 1200 : 0,
      bytes_per_s: pair === 'n0n1' ? 2.1e9 : wifi ? 4.1e7 : 2.9e8,
    };
  });
  return base({
    nodes,
    links,
    models: {
      'llama-3.3-70b-q4': { bytes: 39.6 * GIB, n_layers: 80, architecture: 'llama', context_max: 131072, fetching: null, files: { n0: 1, n1: 0.45 } },
      'qwen3-8b-q8': { bytes: 8.1 * GIB, n_layers: 36, architecture: 'qwen3', context_max: 40960, fetching: { n1: { verified_bytes: 2.2 * GIB, wanted_bytes: 4.5 * GIB, bytes_per_s: 1.1e8 } }, files: { n2: 1, n1: 0.27 } },
      'gemma-3-27b-q4': { bytes: 16 * GIB, n_layers: 62, architecture: 'gemma3', context_max: 131072, fetching: null, files: { n0: 1 } },
    },
    instances: {
      'llama-3.3-70b-q4': {
        model: 'llama-3.3-70b-q4', state: 'ready', problem: null, context: 8192, streams: 2, goal: 'latency', active: true, epoch: 12,
        stages: [
          { node: 'n0', device: 'metal0', first_layer: 0, n_layers: 46, state: 'ready', memory_bytes: 26 * GIB },
          { node: 'n1', device: 'cuda0', first_layer: 46, n_layers: 28, state: 'ready', memory_bytes: 16.5 * GIB },
          { node: 'n1', device: 'cuda1', first_layer: 74, n_layers: 6, state: 'ready', memory_bytes: 4.1 * GIB },
        ],
        next: null, forecast_decode_tokens_per_s: 17.8, forecast_prefill_tokens_per_s: 410, measured_decode_tokens_per_s: 17.1, measured_prefill_tokens_per_s: 396, requests_active: 1, requests_waiting: 0, pause: null,
      },
      'qwen3-8b-q8': {
        model: 'qwen3-8b-q8', state: 'loading', problem: null, context: 16384, streams: 1, goal: 'latency', active: false, epoch: 2,
        stages: [
          { node: 'n1', device: 'cuda0', first_layer: 0, n_layers: 14, state: 'loading', memory_bytes: 3.4 * GIB },
          { node: 'n2', device: 'cpu', first_layer: 14, n_layers: 22, state: 'loading', memory_bytes: 5.4 * GIB },
        ],
        next: null, forecast_decode_tokens_per_s: 9.3, requests_active: 0, requests_waiting: 0, pause: null,
      },
    },
    alerts: {
      a1: { kind: 'node_lost', severity: 'warning', subject: { node: 'n3' }, raised_ms: Date.now() - 840000, text: 'attic has been down for 14 minutes.', mend: 'Start it again, or remove it from the cluster.' },
      a2: { kind: 'hot_device', severity: 'warning', subject: { node: 'n1', device: 'cuda0' }, raised_ms: Date.now() - 60000, text: 'cuda0 of tower is at 78 °C, close to its limit of 83 °C.', mend: 'Medley slows it down by itself. Give it more air if this comes back.' },
    },
    totals: { devices: 6, nodes_up: 4, memory_bytes: 204 * GIB, free_bytes: 120 * GIB, decode_bytes_per_s: 2e12, bottleneck_link_bytes_per_s: 4.1e7, mean_link_bytes_per_s: 5.6e8, fastest_to_slowest: 42, vendors: { nvidia: 2, apple: 1, amd: 2, intel: 1 }, summary: '4 of 5 machines are up: 6 devices with 204 GiB, 120 GiB of it free.' },
  });
}

/** As many machines as are asked for, four devices each; one model over sixteen of them. */
export function bigWorld(n = 64) {
  const nodes = {};
  const ids = [];
  for (let i = 0; i < n; i++) {
    const id = `n${i}`;
    ids.push(id);
    const devices = {};
    for (let d = 0; d < 4; d++)
      devices[`cuda${d}`] = device('NVIDIA L4', 24, { free_bytes: (6 + ((i * 7 + d * 5) % 17)) * GIB, temperature_c: 45 + ((i * 3 + d * 11) % 35), use_share: ((i * 13 + d * 29) % 100) / 100 });
    nodes[id] = machine(`rack${Math.floor(i / 16) + 1}-${String((i % 16) + 1).padStart(2, '0')}`, devices, { state: i === 13 ? 'down' : 'up', leads: i === 0, role: i < 3 ? 'admin' : 'member' });
  }
  const links = linksOf(ids, () => ({ class: 'ethernet', up: true, latency_ns: 120e3, jitter_ns: 1e4, loss_ppm: 0, bytes_per_s: 1.2e9 }));
  const stages = [];
  for (let i = 0; i < 16; i++) stages.push({ node: `n${i === 13 ? 20 : i}`, device: `cuda${i % 4}`, first_layer: i * 8, n_layers: 8, state: 'ready', memory_bytes: 14 * GIB });
  return base({
    nodes,
    links,
    models: { 'llama-405b-q4': { bytes: 229 * GIB, n_layers: 128, architecture: 'llama', context_max: 131072, fetching: null, files: { n0: 1 } } },
    instances: { 'llama-405b-q4': { model: 'llama-405b-q4', state: 'ready', problem: null, context: 8192, streams: 8, goal: 'throughput', active: true, epoch: 3, stages, next: null, forecast_decode_tokens_per_s: 31, measured_decode_tokens_per_s: 29.4, pause: null, requests_active: 5, requests_waiting: 1 } },
    totals: { devices: n * 4, nodes_up: n - 1, memory_bytes: n * 96 * GIB, free_bytes: n * 50 * GIB, summary: `${n - 1} of ${n} machines are up: ${n * 4} devices with ${(n * 96) / 1024} TiB.` },
  });
}

export const worlds = { empty: emptyWorld, home: homeWorld, big: bigWorld };

/** What changes between two looks: a merge patch. */
export function drift(world, tick) {
  const nodes = {};
  Object.entries(world.nodes).forEach(([id, node], i) => {
    if (node.state !== 'up') return;
    const devices = {};
    Object.entries(node.devices).forEach(([key, one], d) => {
      if (one.temperature_c === null) return;
      const wave = Math.sin((tick + i * 7 + d * 3) / 5);
      devices[key] = { temperature_c: Math.round((one.temperature_c + wave * 3) * 10) / 10, use_share: Math.min(1, Math.max(0, one.use_share + wave * 0.05)), power_w: Math.max(5, one.power_w + wave * 8) };
    });
    nodes[id] = { devices };
  });
  return { time_ms: Date.now(), nodes };
}
