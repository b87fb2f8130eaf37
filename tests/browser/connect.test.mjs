// Connect: the snippets that can run here are run as they stand on the page, against the node.
// Benchmark: it runs, shows figures, keeps them, and can be cancelled.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { World, accessibility, model } from './world.mjs';

const run = promisify(execFile);
const world = new World();
let node;
before(async () => {
  await world.open();
  node = await world.node('laptop', '--new', '--model', model);
});
after(() => world.close());

const snippets = (page) => page.locator('#client-panel pre').allTextContents();

test('curl and OpenAI for JavaScript, as they are copied from the page', async () => {
  const page = await world.page(node, { view: 'connect' });
  await page.waitForFunction(() => document.querySelector('#client-panel pre')?.textContent.includes('Medley Stories'));
  assert.deepEqual(await accessibility(page), []);
  await world.shot(page, 'connect-light');
  const [curl] = await snippets(page);
  const said = await run('sh', ['-c', curl], { timeout: 60_000 });
  assert.match(said.stdout, /"delta":\{/);
  assert.match(said.stdout, /data: \[DONE\]/);

  await page.getByRole('tab', { name: 'OpenAI for JavaScript' }).click();
  const script = (await snippets(page))[1];
  const folder = path.join(import.meta.dirname, '../../node_modules', `.medley-connect-${process.pid}`);
  await mkdir(folder); // where the package `openai` is found
  try {
    const file = path.join(folder, 'hello.mjs');
    await writeFile(file, script);
    const { stdout } = await run(process.execPath, [file], { timeout: 60_000 });
    assert.ok(stdout.trim().length > 3, `it wrote ${JSON.stringify(stdout)}`);
  } finally {
    await rm(folder, { recursive: true });
  }
  assert.deepEqual(page.problems, []);
});

test('the list of programs is walked with the arrows, and every one has something to copy', async () => {
  const page = await world.page(node, { view: 'connect', scheme: 'dark', width: 360, height: 740 });
  await page.getByRole('tab').first().focus();
  const seen = new Set();
  const n = await page.getByRole('tab').count();
  assert.ok(n >= 10);
  for (let i = 0; i < n; i++) {
    seen.add(await page.evaluate(() => document.activeElement.textContent.trim()));
    assert.ok((await snippets(page)).every((text) => text.length > 10));
    await page.keyboard.press('ArrowDown');
  }
  assert.equal(seen.size, n);
  assert.deepEqual(await accessibility(page), []);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.equal(wide, 0);
  assert.deepEqual(page.problems, []);
});

test('a benchmark: figures beside the forecast, kept, exported; another is cancelled', async () => {
  const page = await world.page(node, { view: 'benchmark' });
  const press = page.getByRole('button', { name: 'Run', exact: true });
  await press.waitFor();
  await page.getByLabel('Prompt, in tokens').fill('600');
  await page.getByText('context is 512 tokens').waitFor();
  assert.equal(await press.isDisabled(), true);
  await page.getByLabel('Prompt, in tokens').fill('32, 64');
  // Long enough to come in more than one piece: one piece has no time between its tokens.
  await page.getByLabel('Answer, in tokens').fill('96');
  await page.getByLabel('Streams at a time').fill('1, 2');
  await page.getByLabel('Runs of each').fill('2');
  await press.click();
  await page.getByRole('button', { name: 'Cancel' }).waitFor();
  await press.waitFor({ timeout: 120_000 });
  const rows = page.locator('tbody tr');
  assert.equal(await rows.count(), 4);
  for (const cells of await rows.all()) {
    const texts = await cells.locator('td').allTextContents();
    assert.match(texts[0], /Medley Stories.*laptop cpu/s);
    assert.match(texts[1], /^(32|64) \+ 96\s*2 runs/);
    for (const column of [3, 5, 6]) assert.match(texts[column], /^[\d,.]+/, `column ${column}`);
    assert.match(texts[8], /^–/, 'no sensor, no watts');
  }
  assert.deepEqual(await accessibility(page), []);
  await world.shot(page, 'benchmark-light');
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Export CSV' }).click()]);
  assert.equal(download.suggestedFilename(), 'medley-benchmark.csv');
  await page.reload();
  await rows.first().waitFor();
  assert.equal(await rows.count(), 4);
  await page.getByLabel('Runs of each').fill('20');
  await press.click();
  await page.getByRole('button', { name: 'Cancel' }).click();
  await press.waitFor();
  assert.deepEqual(page.problems, []);
});
