// A host of the Model Context Protocol: a server's tools are shown to the model, its calls are carried out by the server,
// and their results go back.
'use strict';
const assert = require('node:assert');
const path = require('node:path');
const { before, after, test } = require('node:test');
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
const OpenAI = require('openai');
const { startBoth, callTokens } = require('./clients.js');
const { call } = require('./echo.js');

let both, host, tools;

before(async () => {
  both = await startBoth();
  host = new Client({ name: 'host-of-the-test', version: '1' });
  await host.connect(new StdioClientTransport({ command: process.execPath, args: [path.join(__dirname, 'mcp_server.js')] }));
  const listed = await host.listTools();
  tools = listed.tools.map(({ name, description, inputSchema }) => ({ type: 'function', function: { name, description, parameters: inputSchema } }));
  assert.deepEqual(tools.map((tool) => tool.function.name), ['add', 'greet']);
});
after(async () => {
  await host.close();
  await both.stop();
});

const client = ({ base }) => new OpenAI({ baseURL: `${base}/v1`, apiKey: 'none', maxRetries: 0 });

async function ask(node, stream, options) {
  const body = { model: node.model, tools, ...options };
  if (!stream) return (await client(node).chat.completions.create(body)).choices[0].message;
  return client(node).chat.completions.stream({ ...body, stream: true }).finalMessage();
}

// The calls of a message, carried out: the messages that go back.
async function carryOut(message) {
  const results = [];
  for (const { id, function: { name, arguments: args } } of message.tool_calls) {
    const { content, isError } = await host.callTool({ name, arguments: JSON.parse(args) });
    assert.ok(!isError, JSON.stringify(content));
    results.push({ role: 'tool', tool_call_id: id, content: content[0].text });
  }
  return [{ role: 'assistant', content: message.content, tool_calls: message.tool_calls }, ...results];
}

for (const stream of [false, true]) {
  test(`the bundled model's call reaches the server, ${stream ? 'streamed' : 'whole'}`, async () => {
    const messages = [{ role: 'user', content: 'Do it.' }];
    for (const seed of [1, 2, 3]) {
      const said = await ask(both.real, stream, { messages, tool_choice: 'required', max_tokens: callTokens, seed });
      const [, result] = await carryOut(said);
      assert.match(result.content, /^(\d+ \+ \d+ = \d+|Hello .*)$/s);
      const last = await ask(both.real, stream, { messages: [...messages, ...await carryOut(said)], max_tokens: 8, temperature: 0 });
      assert.ok(last.content.length > 0);
    }
  });

  test(`two calls at once, and their results, ${stream ? 'streamed' : 'whole'}`, async () => {
    const messages = [{ role: 'user', content: call('add', { a: 2, b: 3 }) + call('greet', { name: 'Fox' }) }];
    const said = await ask(both.echo, stream, { messages });
    const [, first, second] = await carryOut(said);
    assert.deepEqual([first.content, second.content], ['2 + 3 = 5', 'Hello Fox']);
    const last = await ask(both.echo, stream, { messages: [...messages, ...await carryOut(said)] });
    assert.equal(last.content, 'Hello Fox');
  });
}
