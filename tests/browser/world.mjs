// A browser in front of real nodes. Each node is `medley up` on free ports of the loopback, with a
// state folder of its own; all of it goes when the test ends. MEDLEY is the binary, MEDLEY_MODEL a
// small model, MEDLEY_SHOTS a folder for pictures (none: no pictures).
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { chromium } from 'playwright-core';
import { PATIENCE } from './browser.mjs';

const root = path.resolve(import.meta.dirname, '../..');
export const binary = process.env.MEDLEY ?? path.join(root, 'build/release/src/cli/medley');
export const model = process.env.MEDLEY_MODEL ?? path.join(root, 'models/demo.gguf');
const shots = process.env.MEDLEY_SHOTS;
const axe = createRequire(import.meta.url).resolve('axe-core');

export async function waitFor(what, condition, seconds = 20) {
  const end = Date.now() + seconds * 1000 * PATIENCE;
  for (;;) {
    const found = await condition().catch(() => null);
    if (found) return found;
    if (Date.now() > end) throw new Error(`${what}: not within ${seconds * PATIENCE} s`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function freePort() {
  const server = net.createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

class MedleyNode {
  constructor(name, folder) {
    Object.assign(this, { name, folder, host: '127.0.0.1', log: '', options: [] });
  }

  environment() {
    return { ...process.env, MEDLEY_STATE_DIR: this.folder, MEDLEY_RUNTIME_DIR: this.folder };
  }

  async start(...options) {
    this.options = options.length ? options : this.options;
    this.apiPort ??= await freePort();
    this.meshPort ??= await freePort();
    this.url = `http://${this.host}:${this.apiPort}`;
    this.child = spawn(
      binary,
      ['up', '--no-discovery', '--name', this.name, '--listen', `${this.host}:${this.meshPort}`,
        '--api', `${this.host}:${this.apiPort}`, ...this.options],
      { env: this.environment(), stdio: ['ignore', 'pipe', 'pipe'] },
    );
    for (const stream of [this.child.stdout, this.child.stderr])
      stream.setEncoding('utf8').on('data', (text) => (this.log += text));
    this.ended = new Promise((resolve) => this.child.once('close', (code, signal) => resolve({ code, signal })));
    await waitFor(`${this.name} answers`, async () => {
      if (!this.isRunning()) throw new Error('it ended');
      return (await fetch(`${this.url}/health`)).ok;
    });
    return this;
  }

  async medley(...words) {
    const { stdout } = await promisify(execFile)(binary, words, { env: this.environment(), timeout: 60_000 * PATIENCE });
    return stdout;
  }

  async kill(signal = 'SIGKILL') {
    this.child.kill(signal);
    return this.ended;
  }

  isRunning() {
    return this.child && this.child.exitCode === null && this.child.signalCode === null;
  }
}

export class World {
  nodes = [];

  async open() {
    this.folder = await mkdtemp(path.join(os.tmpdir(), 'medley-browser-'));
    this.browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
    return this;
  }

  async node(name, ...options) {
    return this.nodeAt({ name }, ...options);
  }

  /* where: name; host and apiPort if they matter */
  async nodeAt(where, ...options) {
    const folder = path.join(this.folder, where.name);
    await mkdir(folder);
    const node = Object.assign(new MedleyNode(where.name, folder), where);
    this.nodes.push(node);
    return node.start(...options);
  }

  /* One cluster of two; the second computes all layers of the model. */
  async pair(one, two) {
    const device = { memory: '64MiB', flops: '4GFLOP/s' };
    const sim = (where, decode) => this.sim(`${where.name}-card`, { ...device, decode });
    const first = await this.nodeAt(one, '--new', '--sim', await sim(one, '40MB/s'));
    await waitFor('it founds a cluster', async () => JSON.parse(await first.medley('status', '--json')).cluster);
    const { code } = JSON.parse(await first.medley('invite', '--json'));
    const peer = `${first.host}:${first.meshPort}`;
    const second = await this.nodeAt(
      { apiPort: two.host ? first.apiPort : undefined, ...two }, // at another address the same port
      '--peer', peer, '--sim', await sim(two, '120MB/s'),
    );
    /* Its commands are heard a moment after its API. */
    await waitFor(`${two.name} joins`, async () => [await second.medley('join', code, peer)]);
    await first.medley('place', model, '--streams', '1', '-c', '512');
    await waitFor(`${two.name} computes it alone`, async () => {
      const { instances } = JSON.parse(await first.medley('status', '--json'));
      const ready = JSON.stringify(instances.find((each) => each.state === 'ready') ?? '');
      return ready.includes(two.name) && !ready.includes(one.name);
    }, 60);
    return [first, second];
  }

  /* A file of simulated devices: { decode: '80MB/s', … } */
  async sim(name, keys) {
    const file = path.join(this.folder, `${name}.ini`);
    const lines = Object.entries(keys).map(([key, value]) => `${key} = ${value}`);
    await writeFile(file, [`[${name}]`, ...lines, ''].join('\n'));
    return file;
  }

  /* A page whose console must stay clean: an error there, or a refusal of the page's policy, fails
     the test at close(). */
  async page(node, { scheme = 'light', width = 1280, height = 800, view = '', allowed = [], scopes } = {}) {
    this.context = await this.browser.newContext({ colorScheme: scheme, viewport: { width, height }, serviceWorkers: 'block' });
    const page = await this.context.newPage();
    page.problems = [];
    const note = (text) => allowed.some((pattern) => pattern.test(text)) || page.problems.push(text);
    page.on('console', (message) => message.type() === 'error' && note(message.text()));
    page.on('pageerror', (error) => note(String(error)));
    page.on('request', (request) => request.url().startsWith(node.url) || /^(data|blob):/.test(request.url()) || note(`request to ${request.url()}`));
    await this.session(page, node, scopes);
    await page.goto(`${node.url}/#/${view}`);
    return page;
  }

  /* `allowed`: what this browser's token allows; missing: whatever the node says. Nodes without
     sessions need no token: everything is allowed. */
  async session(page, node, allowed) {
    if (!allowed && (await fetch(`${node.url}/api/session`)).ok) return;
    const scopes = allowed ?? ['read', 'generate', 'models', 'admin'];
    if (!scopes.includes('read'))
      await page.route(/\/api\/(live|requests)/, (route) =>
        route.fulfill({ status: 403, json: { error: { code: 'forbidden', text: 'this token may not read' } } }),
      );
    await page.route('**/api/session', (route) =>
      route.fulfill({ json: { needs_token: false, signed_in: true, token: null, scopes, node: { id: '', name: node.name }, version: '', api_base: '/' } }),
    );
  }

  async shot(page, name) {
    if (!shots) return;
    await mkdir(shots, { recursive: true });
    await page.screenshot({ path: path.join(shots, `${name}.png`) });
  }

  async close() {
    await this.browser?.close();
    for (const node of this.nodes) {
      if (!node.isRunning()) continue;
      const { code, signal } = await node.kill('SIGTERM');
      assert.equal(code ?? signal, 0, `${node.name} should end in order:\n${node.log.slice(-3000)}`);
    }
    await rm(this.folder, { recursive: true, force: true });
  }

  logs() {
    return this.nodes.map((node) => `---- ${node.name}\n${node.log.slice(-3000)}`).join('\n');
  }
}

/* What axe-core finds against WCAG 2.2 AA. */
export async function accessibility(page) {
  await page.evaluate(await readFile(axe, 'utf8')); // not as a script: the page's policy forbids it
  const { violations } = await page.evaluate(() =>
    window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }),
  );
  return violations.map((each) => `${each.id}: ${each.help}: ${each.nodes.map((node) => node.html.slice(0, 200)).slice(0, 3).join(' | ')}`);
}
