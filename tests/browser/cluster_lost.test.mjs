// Several machines, and what breaks: the page's packets are lost for ten seconds, and the machine that
// computes is killed in mid-answer.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { visit, within } from './browser.mjs';
import { Cluster, MODEL, until, wholeAnswer } from './cluster.mjs';

const FAST = { memory: '64MiB', decode: '100MB/s', flops: '4GFLOP/s' }; // 25 ms for a token
const SLOW = { ...FAST, decode: '70MB/s' };
const cluster = new Cluster();
const limit = { timeout: within(30_000) };
let tab, name, band;

before(async () => {
  await cluster.open();
  const url = await cluster.world('founds', 'laptop', SLOW);
  await cluster.world('joins', 'tower', FAST, 'laptop');
  await cluster.world('joins', 'attic', SLOW, 'laptop');
  await until('three vote', async () => (await cluster.on('laptop', 'status')).cluster.voters === 3);
  name = JSON.parse(await cluster.medley('laptop', 'add', MODEL, '--json')).model;
  tab = await cluster.page(url);
  band = tab.page.getByRole('region', { name: 'What needs attention' });
});
after(() => cluster.close());

test('a model is picked, forecast and placed', limit, async () => {
  const { page } = tab;
  await visit(tab, 'models');
  await page.getByRole('link', { name }).first().click();
  await page.locator('.forecast[aria-busy=false] .rate').waitFor();
  await page.getByRole('button', { name: 'Place', exact: true }).click();
  await page.getByText(/ is ready\.$/).waitFor();
  const now = page.getByRole('group', { name: 'Layers by device, as they are now' });
  await now.getByText('tower', { exact: true }).waitFor();
  assert.equal(await now.getByText('attic', { exact: true }).count(), 0, 'the fastest alone computes it');
});

test('the page hears nothing for ten seconds: it says so, and catches up without a reload', limit, async (t) => {
  const { page } = tab;
  await visit(tab, 'cluster');
  await page.locator('main[data-phase=live]').waitFor();
  await page.evaluate(() => (window.loadedOnce = true));
  await cluster.world('carries', false);
  const cutAt = Date.now();
  await cluster.on('attic', 'kill'); // what the page has to learn afterwards
  await band.getByText(/No news from this node|Lost the connection/).waitFor();
  t.diagnostic(`said after ${Date.now() - cutAt} ms`);
  await cluster.shot(tab, 'cut');
  await page.waitForTimeout(Math.max(0, 10_000 - (Date.now() - cutAt)));
  await cluster.world('carries', true);
  const mendedAt = Date.now();
  await page.locator('main[data-phase=live]').waitFor();
  t.diagnostic(`live ${Date.now() - mendedAt} ms after the packets went on`);
  await band.getByText(/attic (does not answer|is down)/).waitFor();
  assert.equal(await page.evaluate(() => window.loadedOnce), true, 'the page was loaded anew');
  await cluster.on('attic', 'start');
  await band.getByText(/attic/).first().waitFor({ state: 'hidden' });
});

test('kill -9 of the machine that computes: band, alert, the same text to its end, and all is well again', limit, async (t) => {
  const { page } = tab;
  await visit(tab, 'chat');
  const field = page.getByLabel('Your question');
  await field.fill('Tell me a story about a mouse.');
  await page.keyboard.press('Enter');
  const answer = page.locator('article.assistant').last();
  await until('the answer begins', async () => (await answer.locator('.md').textContent({ timeout: 500 }).catch(() => '')).length > 60);
  await page.evaluate(() => {
    window.said = new Set(); // what the band and the answer explain, however short it is shown
    const look = () =>
      document.querySelectorAll('.band .trouble p, p.pause').forEach((each) => window.said.add(each.textContent.trim()));
    new MutationObserver(look).observe(document.body, { childList: true, subtree: true, characterData: true });
  });
  const killedAt = Date.now();
  await cluster.on('tower', 'kill');
  await band.getByText(/tower/).first().waitFor();
  t.diagnostic(`the band says so ${Date.now() - killedAt} ms after the kill`);
  await cluster.shot(tab, 'killed');
  await until('the answer is written', async () => ['done', 'length'].includes(await answer.getAttribute('data-outcome')), 60_000);
  t.diagnostic(`written ${Date.now() - killedAt} ms after the kill`);
  const { shown, whole } = await wholeAnswer(page);
  assert.ok(shown.length > 100);
  assert.equal(shown, whole);
  const said = (await page.evaluate(() => [...window.said])).join('\n');
  t.diagnostic(said.replaceAll('\n', ' | '));
  assert.match(said, /tower/);
  t.diagnostic(`compared ${Date.now() - killedAt} ms after the kill`);
  await visit(tab, 'activity');
  const alert = page.getByText(/tower.*(lost|does not answer|has not been heard)/i).first();
  await alert.waitFor();
  t.diagnostic(`the alert is shown ${Date.now() - killedAt} ms after the kill`);
  await cluster.shot(tab, 'alert');
  await cluster.on('tower', 'start');
  await band.getByText(/tower/).first().waitFor({ state: 'hidden' });
  await until('the alert is over', async () => JSON.parse(await cluster.medley('laptop', 'alerts', '--json')).alerts.length === 0);
  assert.deepEqual(tab.faults, []);
});
