// The bundled model with a template of Hermes' format, and with one of its words made `<tool_call>`: it has learned no
// calls, but a bias on that token makes it begin them.
'use strict';
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { model } = require('./server.js');

const word = 'Waffle', mark = '<tool_call>', alignment = 32;

const keyAt = (bytes, key) => bytes.indexOf(key, 0, 'latin1') + key.length;
const sized = (text) => {
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([size, Buffer.from(text, 'latin1')]);
};

// The number of a token, and where it stands with its length before it.
function findToken(bytes, text) {
  let at = keyAt(bytes, 'tokenizer.ggml.tokens') + 16;
  for (let id = 0; ; id++) {
    const size = Number(bytes.readBigUInt64LE(at));
    if (bytes.toString('latin1', at + 8, at + 8 + size) === text) return { id, at };
    at += 8 + size;
  }
}

// What is added is a multiple of the alignment, so the tensors stay where they are.
function makeCallingModel({ special }) {
  let bytes = fs.readFileSync(model);
  const { id, at } = findToken(bytes, word);
  const types = keyAt(bytes, 'tokenizer.ggml.token_type') + 16;
  bytes.writeInt32LE(special ? 3 : 1, types + 4 * id);
  const parts = [{ at, size: 8 + word.length, text: sized(mark) }];
  const template = keyAt(bytes, 'tokenizer.chat_template') + 4;
  const size = Number(bytes.readBigUInt64LE(template));
  const old = bytes.toString('latin1', template + 8, template + 8 + size);
  const comment = '{#- <tool_call> -#}'.length, grown = mark.length - word.length;
  const padding = ' '.repeat(alignment - ((comment + grown) % alignment));
  parts.push({ at: template, size: 8 + size, text: sized(`{#- <tool_call>${padding} -#}${old}`) });
  for (const part of parts.sort((a, b) => b.at - a.at))
    bytes = Buffer.concat([bytes.subarray(0, part.at), part.text, bytes.subarray(part.at + part.size)]);
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'medley-calling-'));
  const file = path.join(folder, 'calling.gguf');
  fs.writeFileSync(file, bytes);
  return { file, id, remove: () => fs.rmSync(folder, { recursive: true }) };
}

module.exports = { makeCallingModel };
