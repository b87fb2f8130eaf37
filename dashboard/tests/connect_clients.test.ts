import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { CLIENTS, NO_KEY, shellQuote, textQuote, tokenName } from '../src/connect/clients.ts';

const NASTY = `it's "a" \\ $(touch x) \`y\` \n\u2028 #:{}[] ü🙂`;
const facts = { base: 'https://tower.local:8080/v1', model: 'm', key: 'k', context: 512, needsCa: true };

test('at least ten, each with its own id, something to copy and the address or the model in it', () => {
  assert.ok(CLIENTS.length >= 10);
  assert.equal(new Set(CLIENTS.map((each) => each.id)).size, CLIENTS.length);
  for (const client of CLIENTS) {
    const all = client.snippets(facts).map((each) => each.text).join('\n');
    assert.match(all, /tower\.local:8080/, client.id);
    assert.ok(client.ca(facts), client.id);
    for (const text of [all, client.ca(facts)]) assert.doesNotMatch(text, /undefined|\bnull\b/, client.id);
  }
});

test('the shell takes a nasty text as one word', () => {
  const said = execFileSync('sh', ['-c', `printf %s ${shellQuote(NASTY)}`], { encoding: 'utf8' });
  assert.equal(said, NASTY);
  assert.equal(shellQuote('plain/word:1'), 'plain/word:1');
});

test('quoted for JSON and JavaScript it is the same text', () => {
  assert.equal(JSON.parse(textQuote(NASTY)), NASTY);
  assert.equal(new Function(`return ${textQuote(NASTY)}`)(), NASTY);
  assert.match(textQuote(NASTY), /^[\x20-\x7e]+$/);
});

test('a nasty name of a model breaks out of no snippet', () => {
  for (const client of CLIENTS)
    for (const { text, language } of client.snippets({ ...facts, model: NASTY })) {
      if (language === 'json') assert.ok(text.includes(JSON.stringify(NASTY)), client.id);
      if (language === 'python' || language === 'yaml')
        assert.doesNotMatch(text, /touch x\) `y` \n/, client.id);
      if (language === 'sh') execFileSync('sh', ['-n', '-c', text]); // it parses
    }
});

test('without a token curl sends none', () => {
  const curl = CLIENTS.find((each) => each.id === 'curl')!;
  const text = curl.snippets({ ...facts, key: NO_KEY, needsCa: false })[0]!.text;
  assert.doesNotMatch(text, /Authorization|cacert/);
  execFileSync('sh', ['-n', '-c', text]);
});

test('names of tokens', () => assert.equal(tokenName('curl', 'abcdef'), 'curl-abcd'));
