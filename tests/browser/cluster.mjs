// What a test says to its nodes, which cluster.py keeps in namespaces.
import assert from 'node:assert/strict';
import net from 'node:net';
import { createInterface } from 'node:readline';
import { PATIENCE, launch, openPage } from './browser.mjs';

export const MODEL = process.env.MEDLEY_MODEL;

/** The nodes, and a browser on the same network. */
export class Cluster {
  #answers = [];
  #shots = process.env.MEDLEY_SHOTS;

  async open() {
    this.socket = net.connect(process.env.MEDLEY_WORLD);
    createInterface({ input: this.socket }).on('line', (line) => this.#answers.shift()(JSON.parse(line)));
    this.browser = await launch();
    return this;
  }

  async close() {
    await this.browser?.close();
    this.socket?.end();
  }

  async #say(asked) {
    const { value, error } = await new Promise((answer) => {
      this.#answers.push(answer);
      this.socket.write(`${JSON.stringify(asked)}\n`);
    });
    if (error) throw new Error(error);
    return value;
  }

  /** A method of cluster.py's Stage. */
  world(what, ...args) {
    return this.#say({ do: what, args });
  }

  /** A method of a node (tests/cluster/harness.py). */
  on(node, what, ...args) {
    return this.#say({ node, do: what, args });
  }

  async medley(node, ...words) {
    const { code, out, err } = await this.on(node, 'medley', ...words);
    assert.equal(code, 0, err);
    return out;
  }

  /** The node's certificate is its cluster's own: the browser does not know the authority. */
  page(url, options = {}) {
    return openPage(this.browser, url, { ignoreHTTPSErrors: true, ...options });
  }

  /** A page that may do everything: nodes that the network can reach let nobody be an admin without a
      token. */
  async adminPage(node, url, options) {
    const token = (await this.medley(node, 'token', 'create', 'page', '--scope', 'read,generate,models,admin')).trim();
    const tab = await this.page(url, options);
    await tab.page.goto(url);
    const status = await tab.page.evaluate(async (shown) => {
      const body = JSON.stringify({ token: shown });
      return (await fetch('/api/session', { method: 'POST', headers: { 'content-type': 'application/json' }, body })).status;
    }, token);
    assert.equal(status, 200);
    await tab.page.reload();
    return tab;
  }

  async shot({ page }, name) {
    if (this.#shots) await page.screenshot({ path: `${this.#shots}/${name}.png` });
  }
}

export async function until(what, condition, ms = 20_000) {
  const end = Date.now() + ms * PATIENCE;
  for (;;) {
    const found = await condition();
    if (found) return found;
    if (Date.now() > end) throw new Error(`${what}: not in time`);
    await new Promise((done) => setTimeout(done, 100));
  }
}

/** What the API says to the same question with the same id, whole: by the page itself. */
export function wholeAnswer(page) {
  return page.evaluate(async () => {
    const database = await new Promise((done, failed) => {
      const open = indexedDB.open('medley-chat');
      open.onsuccess = () => done(open.result);
      open.onerror = () => failed(open.error);
    });
    const all = await new Promise((done) => {
      const asked = database.transaction('conversations').objectStore('conversations').getAll();
      asked.onsuccess = () => done(asked.result);
    });
    const { messages } = all.at(-1);
    const answer = messages.at(-1);
    const question = messages.find((each) => each.id === answer.parent);
    const { temperature, top_p, top_k, min_p, max_tokens } = answer.answer.sampling;
    const response = await fetch('/v1/chat/completions', {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-request-id': answer.answer.requestId },
      body: JSON.stringify({
        model: answer.answer.model,
        messages: [{ role: 'user', content: question.text }],
        temperature, top_p, top_k, min_p,
        ...(max_tokens ? { max_tokens } : {}),
      }),
    });
    const said = await response.json();
    return { shown: answer.text, whole: said.choices?.[0].message.content ?? JSON.stringify(said) };
  });
}
