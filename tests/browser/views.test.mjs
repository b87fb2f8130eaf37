// Each view, with a made-up cluster behind it (dashboard/dev/mock.mjs): accessible in both schemes,
// no wider than a phone, within its Content-Security-Policy, and asking nobody else.
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'vite';
import { servePage } from '../../dashboard/dev/serve.mjs';
import { checkAccess, checkWidth, launch, openPage, visit, within } from './browser.mjs';

const VIEWS = ['cluster', 'cluster/n1', 'models', 'models/llama-3.3-70b-q4', 'models/gemma-3-27b-q4',
  'chat', 'activity', 'connect', 'benchmark', 'join'];
const PICTURES = process.env.MEDLEY_PICTURES; // a folder: pictures for docs/dashboard.md
const SHOTS = process.env.MEDLEY_SHOTS; // a folder: every view in both schemes and on a phone
const FIRST_VIEW_BYTES = 200_000; // compressed
const root = fileURLToPath(new URL('../..', import.meta.url));
const dist = mkdtempSync(path.join(os.tmpdir(), 'medley-dist-'));
let browser;

before(async () => {
  await build({ root: path.join(root, 'dashboard'), logLevel: 'error', build: { outDir: dist, emptyOutDir: true } });
  browser = await launch();
});
after(async () => {
  await browser?.close();
  rmSync(dist, { recursive: true, force: true });
});

async function served(options, work) {
  const { server, url, mock } = await servePage(dist, options);
  try {
    await work(url, mock);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

async function shoot(tab, view, how) {
  if (SHOTS)
    await tab.page.screenshot({ path: `${SHOTS}/${view.replaceAll(/\W+/g, '-')}-${how}.png`, fullPage: true });
}

for (const colorScheme of ['light', 'dark'])
  test(`axe-core, policy, no other host: ${colorScheme}`, { timeout: within(120_000) }, () =>
    served({ scenario: 'home' }, async (url) => {
      const tab = await openPage(browser, url, { colorScheme });
      for (const view of VIEWS) {
        await visit(tab, view);
        await tab.page.waitForLoadState('networkidle', { timeout: 1500 }).catch(() => {});
        await checkAccess(tab, `${view}, ${colorScheme}`);
        await shoot(tab, view, colorScheme);
        if (PICTURES && view === 'cluster')
          await tab.page.screenshot({ path: `${PICTURES}/cluster-${colorScheme}.png` });
      }
      assert.deepEqual(tab.faults, []);
      await tab.context.close();
    }));

test('a phone of 360 px', { timeout: within(90_000) }, () =>
  served({ scenario: 'home' }, async (url) => {
    const tab = await openPage(browser, url, { viewport: { width: 360, height: 740 }, hasTouch: true });
    for (const view of VIEWS) {
      await visit(tab, view);
      await tab.page.waitForTimeout(150);
      await checkWidth(tab, view);
      await shoot(tab, view, 'phone');
    }
    await tab.page.getByRole('button', { name: /More/ }).click();
    await checkAccess(tab, 'the sheet of a phone');
    await tab.page.getByRole('link', { name: /Benchmark/ }).click();
    await tab.page.getByRole('heading', { name: 'Benchmark', level: 1 }).waitFor();
    await tab.context.close();
  }));

test('sign-in: a wrong token, the right one, and out', { timeout: within(60_000) }, () =>
  served({ scenario: 'home', token: 'right' }, async (url) => {
    const tab = await openPage(browser, url);
    const { page } = tab;
    await page.goto(url);
    await page.getByLabel('Token').fill('wrong');
    await page.keyboard.press('Enter');
    await page.getByRole('alert').waitFor();
    await checkAccess(tab, 'sign-in with an error');
    await page.getByLabel('Token').fill('right');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Cluster', level: 1 }).waitFor();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByLabel('Token').waitFor();
    await tab.context.close();
  }));

test('by keyboard alone: skip link, navigation, a dialog and back', { timeout: within(60_000) }, () =>
  served({ scenario: 'home' }, async (url) => {
    const { page, context } = await openPage(browser, url);
    await page.goto(`${url}/#/models`);
    await page.getByRole('heading', { name: 'Models' }).waitFor();
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.textContent.trim()), 'Skip to the content');
    await page.keyboard.press('Enter');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter'); // "Add a model"
    await page.getByRole('dialog', { name: 'Add a model' }).waitFor();
    await page.getByLabel(/^File on/).fill('relative.gguf');
    await page.keyboard.press('Enter');
    await page.getByText('it begins with a slash').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'hidden' });
    await context.close();
  }));

test('a machine that knocks is let in with its words', { timeout: within(60_000) }, () =>
  served({ scenario: 'home' }, async (url, mock) => {
    const { page, context } = await openPage(browser, url);
    await page.goto(`${url}/#/join`);
    await page.getByText('amber river tulip seven').waitFor();
    await page.getByRole('button', { name: /let it in/ }).click();
    await page.getByText('guest-mac is in.').waitFor();
    assert.deepEqual(mock.calls.find((call) => call.name === 'admit')?.body, {
      node: 'n9',
      words: 'amber river tulip seven',
    });
    await context.close();
  }));

test('64 machines with 256 devices are all drawn', { timeout: within(90_000) }, (t) =>
  served({ scenario: 'big' }, async (url) => {
    const tab = await openPage(browser, url, { viewport: { width: 1600, height: 1000 } });
    const { page } = tab;
    await page.goto(url);
    await page.locator('.machine').nth(63).waitFor({ state: 'attached' });
    assert.equal(await page.locator('.machine').count(), 64);
    assert.equal(await page.locator('.machine [role=img]').count(), 256);
    const cdp = await tab.context.newCDPSession(page);
    await cdp.send('Performance.enable', { timeDomain: 'threadTicks' });
    await page.waitForTimeout(2000); // the first drawing is not what is measured
    const busy = async () =>
      (await cdp.send('Performance.getMetrics')).metrics.find((one) => one.name === 'TaskDuration').value;
    const [from, begin] = [await busy(), Date.now()];
    await page.waitForTimeout(4000);
    const share = ((await busy()) - from) / ((Date.now() - begin) / 1000);
    t.diagnostic(`main thread at 2 Hz: ${(share * 100).toFixed(1)} % of a core`); // a figure, no limit
    assert.deepEqual(tab.faults, []);
    await tab.context.close();
  }));

test('the first view with a processor slowed 4 times', { timeout: within(60_000) }, (t) =>
  served({ scenario: 'home' }, async (url) => {
    const times = [];
    for (let run = 0; run < 5; run++) {
      const tab = await openPage(browser, url);
      const cdp = await tab.context.newCDPSession(tab.page);
      await cdp.send('Emulation.setCPUThrottlingRate', { rate: 4 });
      await tab.page.goto(url, { waitUntil: 'commit' });
      await tab.page.locator('.machine').first().waitFor();
      times.push(await tab.page.evaluate(() => performance.now())); // since the navigation began
      assert.deepEqual(tab.faults, []);
      await tab.context.close();
    }
    times.sort((a, b) => a - b);
    t.diagnostic(`median of 5: ${Math.round(times[2])} ms (${times.map(Math.round).join(', ')})`); // no limit
  }));

test('the first view is small', () => {
  const html = readFileSync(path.join(dist, 'index.html'), 'utf8');
  const names = readdirSync(path.join(dist, 'assets'));
  const first = names.filter((name) => html.includes(name) || /^(Cluster|derived|Machine)-/.test(name));
  const sum = first.reduce((bytes, name) => bytes + gzipSync(readFileSync(path.join(dist, 'assets', name)), { level: 9 }).length, 0);
  assert.ok(sum > 10_000 && sum <= FIRST_VIEW_BYTES, `${sum} bytes`);
});
