// Several machines, from the first open on: a machine is let in with its four words, layers are
// dragged before they are loaded, a device gets hot.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { visit, within } from './browser.mjs';
import { Cluster, MODEL, until } from './cluster.mjs';

// Neither holds the whole model, so that there is a boundary. At full load it would settle at 120 C, half-way in 3 s.
const HOT = {
  memory: '12MiB', decode: '60MB/s', flops: '1GFLOP/s', power_idle: '5W', power_max: '105W',
  thermal_mass: '5J/K', thermal_resistance: '0.9K/W', limit: '90C', throttle: '30%',
};
const COOL = { memory: '12MiB', decode: '40MB/s', flops: '1GFLOP/s' };
const cluster = new Cluster();
const limit = { timeout: within(30_000) };
let tab, name;

before(async () => {
  await cluster.open();
  tab = await cluster.adminPage('laptop', await cluster.world('founds', 'laptop', COOL));
});
after(() => cluster.close());

test('an empty cluster of one says what to do; a second machine is let in by a button', limit, async () => {
  const { page } = tab;
  await visit(tab, 'cluster');
  await page.getByText('Three steps to your first answer').waitFor();
  assert.equal(await page.locator('.machine').count(), 1);
  await page.getByRole('listitem').getByRole('link', { name: 'Add a machine' }).click();
  await page.getByText('None now.').waitFor();
  await cluster.world('starts', 'tower', HOT, '--peer', '10.77.0.1');
  const shown = await cluster.world('knocks', 'tower', 'laptop');
  const words = await page.locator('.knock .words').textContent();
  assert.ok(shown.includes(words.trim()), `the page shows ${words}, the machine ${shown}`);
  await cluster.shot(tab, 'join-words');
  await page.getByRole('button', { name: 'The words match: let it in' }).click();
  assert.equal(await cluster.world('agrees', 'tower'), 0);
  await page.getByText('tower is in.').waitFor();
  await visit(tab, 'cluster');
  await page.locator('.machine').getByRole('link', { name: 'tower' }).waitFor();
});

test('a boundary is dragged with the mouse, and Place loads exactly that split', limit, async () => {
  const { page } = tab;
  name = JSON.parse(await cluster.medley('laptop', 'add', MODEL, '--json')).model;
  const { n_layers: total } = await page.evaluate(
    (of) => fetch('/api/status').then((answer) => answer.json()).then(({ models }) => models.find((one) => one.name === of)),
    name,
  );
  await visit(tab, `models/${encodeURIComponent(name)}`);
  await page.getByRole('slider', { name: 'At the same time' }).press('Home');
  await page.locator('.forecast[aria-busy=false] .rate').waitFor();
  const strip = page.getByRole('group', { name: 'Layers by device, as planned' });
  const handle = strip.getByRole('slider');
  await handle.waitFor();
  const [box, from] = [await strip.boundingBox(), Number(await handle.getAttribute('aria-valuenow'))];
  const to = from > 1 ? from - 1 : from + 1;
  const asked = page.waitForResponse((one) => {
    const layers = one.url().endsWith('/api/plan') && one.request().postDataJSON().layers;
    return layers && layers[0].n_layers === to;
  });
  const grip = await handle.boundingBox();
  await page.mouse.move(grip.x + grip.width / 2, grip.y + grip.height / 2);
  await page.mouse.down();
  await page.mouse.move(box.x + (box.width * to) / total, grip.y + grip.height / 2, { steps: 8 });
  await page.mouse.up();
  assert.equal(Number(await handle.getAttribute('aria-valuenow')), to);
  const answer = await asked;
  const { layers } = answer.request().postDataJSON();
  assert.deepEqual(layers.map((one) => one.n_layers), [to, total - to]);
  const { best } = await answer.json();
  const words = ({ first_layer: first, layers: n }) => (n === 1 ? `layer ${first}` : `layers ${first}–${first + n - 1}`);
  const wanted = best.stages.map(words);
  await until('the new forecast is shown', async () => {
    const rows = await page.locator('.forecast[aria-busy=false] ol > li').allTextContents();
    return rows.length === wanted.length && rows.every((row, i) => row.includes(wanted[i]));
  });
  const shown = Number(await page.locator('.rate strong').textContent());
  assert.ok(Math.abs(shown - best.decode_tokens_per_s) < 0.6, `${shown} for ${best.decode_tokens_per_s}`);
  await page.getByText(/than the best split/).waitFor();
  await cluster.shot(tab, 'dragged');
  await page.getByRole('button', { name: 'Place', exact: true }).click();
  await page.getByText(/ is ready\.$/).waitFor();
  const { instances } = await page.evaluate(() => fetch('/api/status').then((answer) => answer.json()));
  assert.deepEqual(
    instances[0].stages.map((stage) => [stage.node, stage.device, stage.n_layers]),
    layers.map((one) => [one.node, one.device, one.n_layers]),
  );
});

test('a device that gets hot: its card says so, and an alert comes and goes', limit, async () => {
  const { page } = tab;
  for (const field of ['raise=40', 'clear=25', 'raise_after_s=1', 'clear_after_s=1'])
    await cluster.medley('laptop', 'alerts', '--set', `device_hot.${field}`);
  await visit(tab, 'cluster');
  const reading = page.locator('.machine', { hasText: 'tower' }).locator('.reading').first();
  const degrees = async () => Number.parseFloat(await reading.textContent());
  const cool = await degrees();
  await page.evaluate((model) => {
    window.working = true;
    const body = JSON.stringify({ model, max_tokens: 40, messages: [{ role: 'user', content: 'Tell me a story.' }] });
    const headers = { 'content-type': 'application/json' };
    void (async () => {
      while (window.working) await (await fetch('/v1/chat/completions', { method: 'POST', headers, body })).text();
    })();
  }, name);
  await until('it gets warm', async () => (await degrees()) > cool + 10);
  const band = page.getByRole('region', { name: 'What needs attention' });
  await band.getByText(/tower.* of the way to the temperature/).waitFor();
  await cluster.shot(tab, 'hot');
  await visit(tab, 'activity');
  await page.getByText(/Give it air/).first().waitFor();
  await page.evaluate(() => (window.working = false));
  await band.getByText(/of the way to the temperature/).waitFor({ state: 'hidden' });
  assert.deepEqual(tab.faults, []);
});
