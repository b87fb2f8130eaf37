// The page of a real node with two simulated devices: from the first open to an answer, and what
// happens when the node goes away and comes back.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { checkAccess, launch, Node, openPage, visit, within } from './browser.mjs';

const MODEL = process.env.MEDLEY_MODEL;
const PICTURES = process.env.MEDLEY_PICTURES; // a folder: pictures for docs/dashboard.md
let browser, node, tab;
let name; // of the model, as its file says

before(async () => {
  browser = await launch();
  node = await new Node().start();
  tab = await openPage(browser, node.url);
});
after(async () => {
  await browser?.close();
  await node?.close();
});

async function picture(name) {
  if (!PICTURES) return;
  await tab.page.waitForTimeout(600);
  await tab.page.screenshot({ path: `${PICTURES}/${name}.png` });
}

const limit = { timeout: within(60_000) };

test('first open: an empty cluster says what to do', limit, async () => {
  const { page } = tab;
  await visit(tab, 'cluster');
  await page.getByText('Three steps to your first answer').waitFor();
  await page.locator('.machine').getByText('studio').waitFor();
  await checkAccess(tab, 'an empty cluster');
  await page.getByRole('link', { name: 'Add a model' }).click();
  await page.getByText('No models yet').waitFor();
});

test('add a model by its path, and see the forecast before it is loaded', limit, async () => {
  const { page } = tab;
  await page.getByRole('button', { name: 'Add a model' }).click();
  await page.getByLabel(/^File on/).fill(MODEL);
  await page.getByRole('dialog').getByRole('button', { name: 'Add', exact: true }).click();
  await page.getByText('Before it is loaded').waitFor();
  name = await page.locator('main h1').textContent();
  await page.locator('.forecast[aria-busy=false] .rate').waitFor();
  await page.getByText(/The bottleneck is /).waitFor();
  await picture('plan');
  await checkAccess(tab, 'a forecast');
});

test('controls plan anew at once', limit, async () => {
  const { page } = tab;
  const asked = page.waitForRequest((one) => one.url().endsWith('/api/plan'));
  const slider = page.getByRole('slider', { name: 'At the same time' });
  await slider.press('Home');
  assert.equal((await asked).postDataJSON().streams, 1);
  await page.getByText('1 conversation', { exact: true }).first().waitFor();
  await page.locator('.forecast[aria-busy=false] .rate').waitFor();
});

test('place: layers arrive, and the cluster shows them', limit, async () => {
  const { page } = tab;
  await page.getByRole('button', { name: 'Place', exact: true }).click();
  await page.getByText(/ is ready\.$/).waitFor();
  await page.getByRole('group', { name: 'Layers by device, as they are now' }).waitFor();
  await visit(tab, 'cluster');
  await page.locator(`.machine [role=img][aria-label*="${name}"]`).first().waitFor();
});

test('a boundary moves by keyboard, its forecast follows, and then the layers', limit, async () => {
  const { page } = tab;
  const views = await fetch(`${node.url}/api/status`).then((answer) => answer.json());
  const instance = views.instances[0];
  const total = instance.stages.reduce((sum, stage) => sum + stage.n_layers, 0);
  // Both devices, so that there is a boundary.
  const to = [
    { node: 'studio', device: 'sim:fast', n_layers: total - 1 },
    { node: 'studio', device: 'sim:slow', n_layers: 1 },
  ];
  const moved = await fetch(`${node.url}/api/move`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ instance: instance.id, to }),
  });
  assert.equal(moved.status, 200, await moved.text());
  await visit(tab, `models/${encodeURIComponent(name)}`);
  await page.getByRole('button', { name: 'Change it from here' }).click();
  const handle = page.getByRole('slider', { name: /^Boundary between/ });
  const before = Number(await handle.getAttribute('aria-valuenow'));
  assert.equal(before, total - 1);
  await handle.press('ArrowLeft');
  assert.equal(Number(await handle.getAttribute('aria-valuenow')), before - 1);
  await page.getByText(/slower|faster|as fast/).first().waitFor();
  await picture('boundary');
  await page.getByRole('button', { name: 'Move it there' }).click();
  await page.getByText(/serves from its new devices/).waitFor();
  const after = await fetch(`${node.url}/api/status`).then((answer) => answer.json());
  assert.deepEqual(after.instances[0].stages.map((stage) => stage.n_layers), [total - 2, 2]);
});

test('two browsers at once: what one does, the other sees', limit, async () => {
  const other = await openPage(browser, node.url);
  await visit(other, 'models');
  await other.page.getByText('ready', { exact: true }).waitFor();
  await tab.page.getByRole('button', { name: 'Unload' }).click();
  await tab.page.getByRole('dialog').getByRole('button', { name: 'Unload' }).click();
  await other.page.getByText('not loaded', { exact: true }).waitFor();
  await other.context.close();
});

test('the node is lost: the band says so; it comes back by itself', limit, async () => {
  const { page } = tab;
  await visit(tab, 'cluster');
  await node.kill();
  const lost = page.getByText('Lost the connection to this node.');
  await lost.waitFor();
  await node.start();
  await lost.waitFor({ state: 'hidden' });
  await page.locator('main[data-phase=live]').waitFor();
  await page.locator('.machine').getByText('studio').waitFor();
});

test('a token that may only read steers nothing', limit, async () => {
  await node.kill();
  const made = await node.start('--require-token').then(() => node.medley('token', 'create', 'guest', '--scope', 'read', '--json'));
  const guest = await openPage(browser, node.url);
  const { page } = guest;
  await page.goto(node.url);
  await page.getByLabel('Token').fill(JSON.parse(made).token);
  await page.keyboard.press('Enter');
  await page.locator('.machine').getByText('studio').waitFor();
  await page.locator('.machine a').click();
  await page.getByRole('heading', { name: 'studio', level: 1 }).waitFor();
  for (const name of ['Drain', 'Leave', 'Remove']) assert.equal(await page.getByRole('button', { name }).count(), 0);
  await visit(guest, `models/${encodeURIComponent(name)}`);
  await page.locator('.forecast .rate').waitFor(); // looking is allowed
  for (const name of ['Place', 'Forget']) assert.equal(await page.getByRole('button', { name, exact: true }).count(), 0);
  assert.equal(await page.getByRole('link', { name: 'Chat' }).count(), 0);
  assert.deepEqual(guest.faults, []);
  await guest.context.close();
});

test('no errors, no breach of the policy, no request elsewhere', () => {
  assert.deepEqual(tab.faults, []);
});
