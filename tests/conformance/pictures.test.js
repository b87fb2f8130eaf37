// Pictures from a request to the model: a tiny language model (tests/golden/models/gemma3.gguf) with a tiny projector beside it. What
// it says means nothing; that it depends on the picture, on all of it and on nothing else, is what is tested.
'use strict';
const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const zlib = require('node:zlib');
const { after, before, test } = require('node:test');
const { start, run, post, devices } = require('./server.js');

const rows = 16; // of every picture: 32 x 32 pixels, patches of 4, 2 x 2 patches a row
const golden = path.join(__dirname, '..', 'golden');
let folder, file, server;

function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type), data]), out = Buffer.alloc(body.length + 8);
  out.writeUInt32BE(data.length, 0);
  body.copy(out, 4);
  out.writeUInt32BE(zlib.crc32(body), body.length + 4);
  return out;
}

// A gradient of that colour.
function png(red, green, blue, side = 24) {
  const lines = [];
  for (let y = 0; y < side; y++) {
    lines.push(0);
    for (let x = 0; x < side; x++) lines.push((red * x) / side, (green * y) / side, blue);
  }
  const head = Buffer.alloc(13);
  head.writeUInt32BE(side, 0);
  head.writeUInt32BE(side, 4);
  head.set([8, 2, 0, 0, 0], 8);
  return Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), chunk('IHDR', head),
    chunk('IDAT', zlib.deflateSync(Buffer.from(lines))), chunk('IEND', Buffer.alloc(0))]);
}

const sunset = png(250, 120, 10), sea = png(10, 90, 240);
const base64 = (bytes) => bytes.toString('base64');
const shown = (bytes, type = 'image/png') => ({ type: 'image_url', image_url: { url: `data:${type};base64,${base64(bytes)}` } });
const ask = (content, more) => server.client.chat.completions.create(
  { model: server.model, messages: [{ role: 'user', content }], max_tokens: 4, temperature: 0, logprobs: true, top_logprobs: 5, ...more });
const first = (reply) => reply.choices[0].logprobs.content[0].top_logprobs.map(({ logprob }) => logprob);

before(async () => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'medley-pictures-'));
  file = path.join(folder, 'sees.gguf');
  fs.copyFileSync(path.join(golden, 'models/gemma3.gguf'), file);
  fs.copyFileSync(path.join(golden, 'pictures/models/gemma3.gguf'), path.join(folder, 'mmproj-sees.gguf'));
  fs.copyFileSync(path.join(golden, 'pictures/models/qwen2vl.gguf'), path.join(folder, 'mmproj-another.gguf'));
  server = await start({ file, slots: 2 });
});
after(async () => {
  await server?.stop();
  fs.rmSync(folder, { recursive: true });
});

test('the answer depends on the picture, and on nothing else', async () => {
  const text = { type: 'text', text: 'abc' };
  const one = await ask([shown(sunset), text]);
  const again = await ask([shown(sunset), text]);
  const other = await ask([shown(sea), text]);
  assert.deepEqual(first(again), first(one));
  assert.equal(again.choices[0].message.content, one.choices[0].message.content);
  assert.notDeepEqual(first(other), first(one));
  assert.equal(other.usage.prompt_tokens, one.usage.prompt_tokens);
});

test('a prompt that goes on from a picture reuses its rows, to the same answer', async () => {
  const head = [{ role: 'user', content: [shown(png(90, 90, 90)), { type: 'text', text: 'abcdefgh' }] }];
  const more = [...head, { role: 'assistant', content: 'x' }, { role: 'user', content: 'y' }];
  const whole = { model: server.model, max_tokens: 4, temperature: 0, logprobs: true, top_logprobs: 5 };
  await server.client.chat.completions.create({ ...whole, messages: head });
  const reused = await server.client.chat.completions.create({ ...whole, messages: more });
  assert.ok(reused.usage.prompt_tokens_details.cached_tokens > rows, `${reused.usage.prompt_tokens_details.cached_tokens} tokens`);
  const fresh = await start({ file, slots: 1 });
  const anew = await fresh.client.chat.completions.create({ ...whole, model: fresh.model, messages: more });
  await fresh.stop();
  assert.equal(anew.usage.prompt_tokens_details.cached_tokens, 0);
  assert.equal(anew.choices[0].message.content, reused.choices[0].message.content);
});

test('rows count as tokens of the prompt', async () => {
  const none = await ask('abc'), one = await ask([shown(sea), { type: 'text', text: 'abc' }]);
  const two = await ask([shown(sea), shown(sunset), { type: 'text', text: 'abc' }]);
  const each = one.usage.prompt_tokens - none.usage.prompt_tokens;
  assert.ok(each > rows && each < 4 * rows, `${each} tokens`); // and what the projector has around them
  // The text behind a picture begins anew: its first token may be another than in the middle.
  const second = two.usage.prompt_tokens - one.usage.prompt_tokens;
  assert.ok(Math.abs(second - each) <= 1, `${second} and ${each} tokens`);
});

test('each interface shows the same picture', async () => {
  const want = (await ask([shown(sea), { type: 'text', text: 'abc' }])).usage.prompt_tokens;
  const responses = await post(server.base, '/v1/responses', JSON.stringify({ model: server.model, max_output_tokens: 2,
    input: [{ role: 'user', content: [{ type: 'input_image', image_url: shown(sea).image_url.url }, { type: 'input_text', text: 'abc' }] }] }));
  assert.equal(responses.json.usage.input_tokens, want);
  const messages = await post(server.base, '/v1/messages/count_tokens', JSON.stringify({ model: server.model, messages: [{ role: 'user', content: [
    { type: 'image', source: { type: 'base64', media_type: 'image/png', data: base64(sea) } }, { type: 'text', text: 'abc' }] }] }));
  assert.equal(messages.json.input_tokens, want);
  const ollama = await post(server.base, '/api/chat', JSON.stringify({ model: server.model, stream: false, options: { num_predict: 2 },
    messages: [{ role: 'user', content: 'abc', images: [base64(sea)] }] }));
  assert.equal(ollama.json.prompt_eval_count, want);
});

test('what is no picture is refused with its place', async () => {
  const refused = async (part, pattern) => {
    const { status, json } = await post(server.base, '/v1/chat/completions', JSON.stringify({ model: server.model, max_tokens: 2,
      messages: [{ role: 'user', content: [{ type: 'text', text: 'a' }, part] }] }));
    assert.equal(status, 400);
    assert.equal(json.error.param, 'messages[0].content[1]');
    assert.match(json.error.message, pattern);
  };
  await refused(shown(sea.subarray(0, sea.length - 30)), /PNG: /);
  await refused(shown(Buffer.from('GIF89a..')), /GIF cannot be read here; convert it/);
  await refused(shown(Buffer.from('hello')), /give a PNG, JPEG or WebP/);
  await refused({ type: 'image_url', image_url: { url: 'data:image/png;base64,****' } }, /is not base64/);
  const { status, json } = await post(server.base, '/v1/chat/completions', JSON.stringify({ model: server.model, max_tokens: 2,
    messages: [{ role: 'user', content: [shown(sea), { type: 'text', text: '\u{10FFFD}' }] }] }));
  assert.equal(status, 400);
  assert.match(json.error.message, /room for 2 pictures, and there are 1/);
  await ask([shown(sea)]); // it goes on
});

test('a model without a projector refuses by name', async () => {
  const blind = await start({ file, args: ['--projector', 'none'] });
  const { status, json } = await post(blind.base, '/v1/chat/completions', JSON.stringify({ model: blind.model,
    messages: [{ role: 'user', content: [shown(sea)] }] }));
  await blind.stop();
  assert.equal(status, 400);
  assert.equal(json.error.param, 'messages[0].content[0]');
  assert.match(json.error.message, /without a projector.*--projector FILE/);
});

test('medley run shows files', async () => {
  const picture = path.join(folder, 'sea.png');
  fs.writeFileSync(picture, sea);
  const args = ['run', file, '--here', '--devices', devices, '-p', 'abc', '-n', '4', '--temp', '0', '--json', '--image', picture];
  const one = await run(args).exit, two = await run(args).exit;
  assert.equal(one.code, 0, one.stderr);
  const answer = JSON.parse(one.stdout);
  assert.equal(answer.prompt_tokens.filter((token) => token >= 2 ** 30).length, rows);
  assert.equal(JSON.parse(two.stdout).text, answer.text);
  assert.match(one.stderr, /pictures: by .*mmproj-sees\.gguf \(gemma3\), on /);
  const alone = await run(['run', path.join(golden, 'models/gemma3.gguf'), '--devices', devices, '-p', 'abc', '--image', picture]).exit;
  assert.notEqual(alone.code, 0);
  assert.match(alone.stderr, /no projector beside its file.*--projector FILE/);
  const wrong = await run(['run', file, '--devices', devices, '-p', 'a', '--image', picture, '--projector', path.join(folder, 'mmproj-another.gguf')]).exit;
  assert.match(wrong.stderr, /goes with the model it was made for/);
});
