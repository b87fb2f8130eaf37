import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BlockSplitter, linePieces } from '../src/chat/blocks.ts';
import { languageOf, linkCheck, markdownToHtml } from '../src/chat/markdown.ts';
import { thoughtSplit } from '../src/chat/think.ts';

test('thoughts are told from the answer', () => {
  const split = (text: string, streaming = false) => thoughtSplit(text, '', streaming);
  assert.deepEqual(split('plain'), { thinking: '', answer: 'plain', isOpen: false });
  assert.deepEqual(split(' <think>a\n</think>\n\nb'), { thinking: 'a', answer: 'b', isOpen: false });
  assert.deepEqual(split('a</think>b'), { thinking: 'a', answer: 'b', isOpen: false });
  assert.deepEqual(split('<think>a', true), { thinking: 'a', answer: '', isOpen: true });
  assert.deepEqual(split('<think>a'), { thinking: 'a', answer: '', isOpen: false }, 'stopped');
  const late = 'Write `<think>` and `</think>`.';
  assert.deepEqual(split(late), { thinking: '', answer: late, isOpen: false });
  assert.deepEqual(thoughtSplit('b', 'a', true), { thinking: 'a', answer: 'b', isOpen: false });
  assert.deepEqual(thoughtSplit('', 'a', true), { thinking: 'a', answer: '', isOpen: true });
});

test('half a tag is never shown while it streams', () => {
  const text = '<think>why</think>because';
  for (let n = 1; n < text.length; n++) {
    const shown = thoughtSplit(text.slice(0, n), '', true);
    assert.doesNotMatch(shown.thinking + shown.answer, /[<>]/, text.slice(0, n));
  }
});

const TEXT =
  'One\ntwo\n\nthree\n\n- a\n\n- b\n\n  of b\n\nafter\n\n```js\nlet x;\n\nlet y;\n```\nbehind\n\n' +
  '~~~~\n```\n\n~~~\n~~~~\n\n1. x\n\n2. y\n\n\n\n| a |\n|---|\n| b |\n\nend';
const BLOCKS = [
  'One\ntwo\n\n',
  'three\n\n',
  '- a\n\n- b\n\n  of b\n\n',
  'after\n\n',
  '```js\nlet x;\n\nlet y;\n```\nbehind\n\n',
  '~~~~\n```\n\n~~~\n~~~~\n\n',
  '1. x\n\n2. y\n\n\n\n',
  '| a |\n|---|\n| b |\n\nend', // a line that has not ended may be anything yet
];

test('blocks: the same at once and letter by letter', () => {
  assert.deepEqual(new BlockSplitter().update(TEXT), BLOCKS);
  const splitter = new BlockSplitter();
  for (let n = 0; n <= TEXT.length; n++) {
    const blocks = splitter.update(TEXT.slice(0, n));
    assert.equal(blocks.join(''), TEXT.slice(0, n));
  }
  assert.deepEqual(splitter.update(TEXT), BLOCKS);
  assert.deepEqual(splitter.update('other'), ['other'], 'another text begins anew');
});

test('blocks that are closed stay as they are', () => {
  const splitter = new BlockSplitter();
  let before: string[] = [];
  for (let n = 0; n <= TEXT.length; n++) {
    const blocks = splitter.update(TEXT.slice(0, n));
    assert.deepEqual(blocks.slice(0, before.length - 1), before.slice(0, -1));
    before = blocks;
  }
});

test('pieces of lines: joined the text, all but the last closed', () => {
  const text = Array.from({ length: 130 }, (_, i) => `line ${i}`).join('\n');
  const pieces = linePieces(text);
  assert.equal(pieces.join(''), text);
  assert.deepEqual(pieces.map((each) => each.split('\n').length - 1), [60, 60, 9]);
  assert.deepEqual(linePieces(''), []);
  assert.deepEqual(linePieces('a\n', 1), ['a\n']);
});

test('a fence that is open is known', () => {
  const splitter = new BlockSplitter();
  splitter.update('```c\nint x;\n');
  assert.equal(splitter.isInFence, true);
  splitter.update('```c\nint x;\n```\n');
  assert.equal(splitter.isInFence, false);
});

test('links: only of schemes that read', () => {
  for (const good of ['https://a.b/c?d#e', 'HTTP://x', 'mailto:a@b.c'])
    assert.notEqual(linkCheck(good), null, good);
  for (const bad of [
    'javascript:alert(1)',
    'JaVaScRiPt:alert(1)',
    ' java\tscript:alert(1)',
    '\u0001javascript:alert(1)',
    'data:text/html,<script>',
    'vbscript:x',
    'file:///etc/passwd',
    'blob:https://x/1',
    '/api/token',
    '#/join',
    '//evil.example',
    'https://',
    '',
  ])
    assert.equal(linkCheck(bad), null, bad);
});

test('Markdown: HTML is text, images are links, code has a language', () => {
  const html = markdownToHtml('<b onclick=x>hi</b> ![a](https://x/y.png) [l](javascript:x)');
  assert.match(html, /&lt;b onclick=x&gt;hi&lt;\/b&gt;/);
  assert.doesNotMatch(html, /<b|<img|javascript/);
  assert.match(html, /<a href="https:\/\/x\/y.png"[^>]*>Image: a<\/a>/);
  assert.match(markdownToHtml('```c++ x\n<i>\n```'), /<span>c\+\+<\/span>.*&lt;i&gt;/s);
  assert.equal(languageOf('"><script>'), '');
  assert.equal(languageOf('  js title'), 'js');
});
