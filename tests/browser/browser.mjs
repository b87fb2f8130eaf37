// What the tests of the page share: a node of its own on the loopback, Debian's Chromium, and a
// watch on what the page must never do (errors, requests elsewhere, breaches of its policy).
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { chromium } from 'playwright-core';

const require = createRequire(import.meta.url);
const AXE = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
export const PATIENCE =
  Number(process.env.MEDLEY_PATIENCE ?? 1) * Number(process.env.MEDLEY_SLOWNESS ?? 1);

/** Milliseconds, longer where the build or the machine is slow. */
export const within = (ms) => ms * PATIENCE;

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

const DEVICES = `[fast]
memory = 1GiB
decode = 200MB/s
flops = 4GFLOP/s
clock = 2GHz
power_idle = 10W
power_max = 90W
thermal_mass = 200J/K
thermal_resistance = 0.5K/W
limit = 85C

[slow]
memory = 512MiB
decode = 90MB/s
flops = 2GFLOP/s
`;

/** `medley up`, alone, with two simulated devices. */
export class Node {
  constructor() {
    this.folder = mkdtempSync(path.join(os.tmpdir(), 'medley-page-'));
    this.said = '';
    writeFileSync(path.join(this.folder, 'sim.ini'), DEVICES);
  }

  environment() {
    return {
      ...process.env,
      MEDLEY_STATE_DIR: path.join(this.folder, 'state'),
      HOME: this.folder,
      GOMP_SPINCOUNT: '100',
    };
  }

  /** Its words; the port stays the same over a restart. */
  async start(...options) {
    this.port ??= await freePort();
    this.listens ??= await freePort();
    this.url = `http://127.0.0.1:${this.port}`;
    const first = this.process === undefined;
    this.process = spawn(
      process.env.MEDLEY,
      ['up', ...(first ? ['--new'] : []), '--name', 'studio', '-t', '1', '--no-discovery',
        '--listen', `127.0.0.1:${this.listens}`, '--api', `127.0.0.1:${this.port}`, '--sim', path.join(this.folder, 'sim.ini'), ...options],
      { env: this.environment(), stdio: ['ignore', 'pipe', 'pipe'] },
    );
    for (const stream of [this.process.stdout, this.process.stderr])
      stream.on('data', (bytes) => (this.said += bytes));
    const end = Date.now() + within(20000);
    while (Date.now() < end) {
      if (this.process.exitCode !== null) break;
      try {
        if ((await fetch(`${this.url}/api/session`)).ok) return this;
      } catch {
        await new Promise((done) => setTimeout(done, 100));
      }
    }
    throw new Error(`the node does not answer: ${this.said}`);
  }

  /** A command on it; what it prints. */
  async medley(...words) {
    const command = spawn(process.env.MEDLEY, words, { env: this.environment() });
    let out = '';
    command.stdout.on('data', (bytes) => (out += bytes));
    command.stderr.on('data', (bytes) => (out += bytes));
    const [code] = await once(command, 'close');
    assert.equal(code, 0, `medley ${words.join(' ')}: ${out}`);
    return out;
  }

  async kill() {
    if (!this.process || this.process.exitCode !== null || this.process.signalCode) return;
    this.process.kill('SIGKILL');
    await once(this.process, 'close');
  }

  async close() {
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Debian's Chromium; `browser.close()` when done. */
export function launch() {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
}

/** A browser of its own at `url`; `faults` gathers what the page must not do. */
export async function openPage(browser, url, options = {}) {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 900 },
    reducedMotion: 'reduce',
    ...options,
  });
  const page = await context.newPage();
  const faults = [];
  const origin = new URL(url).origin;
  page.setDefaultTimeout(within(15000));
  page.on('pageerror', (error) => faults.push(`error: ${error.message}`));
  page.on('console', (message) => {
    if (/Content.Security.Policy/i.test(message.text())) faults.push(message.text());
  });
  page.on('request', (request) => {
    const to = request.url();
    if (!to.startsWith(origin) && !/^(data|blob):/.test(to)) faults.push(`request to ${to}`);
  });
  await page.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => {
      console.error(`Content-Security-Policy: ${event.violatedDirective} ${event.blockedURI}`);
    });
  });
  return { context, page, faults, url };
}

export async function visit({ page, url }, view) {
  await page.goto(`${url}/#/${view}`);
  await page.locator('main h1').first().waitFor();
}

/** WCAG 2.2 A and AA, as far as a program can see it. */
export async function checkAccess({ page }, what) {
  await page.evaluate(AXE); // not a script element: the page's policy stays as it is
  const { violations } = await page.evaluate(() =>
    globalThis.axe.run(document, {
      runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
    }),
  );
  const words = violations.map(
    (one) => `${one.id}: ${one.help}: ${one.nodes.map((node) => node.html.slice(0, 160)).join(' | ')}`,
  );
  assert.deepEqual(words, [], `axe-core on ${what}`);
}

export async function checkWidth({ page }, what) {
  const beyond = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(beyond <= 0, `${what} is ${beyond} px too wide`);
}
