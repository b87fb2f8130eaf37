// Two coding agents' command lines, each with a task and nobody to ask. With the bundled model, which knows stories only,
// the session has to begin, stream and end well; with the model that says what it is told the task is carried out as well.
'use strict';
const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const { before, after, describe, test } = require('node:test');
const { startBoth, story } = require('./clients.js');
const { call } = require('./echo.js');
const { makeDesk, runAgent } = require('./agent.js');

let both;
before(async () => {
  both = await startBoth({ context: 16384, slots: 2, args: ['--rope-scaling', 'yarn', '--rope-scale', '32'] });
  both.real.answer = 24; // tokens: a story has no end that an agent would wait for
  both.echo.answer = 4000;
});
after(() => both.stop());

// An agent's settings and arguments for a node, and how it names the tool that reads a file.
const pi = (api, address) => ({
  script: '@mariozechner/pi-coding-agent/dist/cli.js',
  settings: (node) => ({ '.pi/agent/models.json': { providers: { medley: { baseUrl: node.base + address, api, apiKey: 'none',
    models: [{ id: node.model, contextWindow: 128000, maxTokens: node.answer }] } } } }),
  args: (node, task) => ['--provider', 'medley', '--model', node.model, '--no-session', '--mode', 'json', '-p', task],
  env: () => ({ PI_OFFLINE: '1', PI_TELEMETRY: '0', PI_SKIP_VERSION_CHECK: '1' }),
  read: (file) => call('read', { path: file }),
});
const agents = {
  'pi, OpenAI': pi('openai-completions', '/v1'),
  'pi, responses': pi('openai-responses', '/v1'),
  'pi, Anthropic': pi('anthropic-messages', ''),
  qwen: {
    script: '@qwen-code/qwen-code/cli.js',
    settings: () => ({ '.qwen/settings.json': { privacy: { usageStatisticsEnabled: false }, telemetry: { enabled: false }, general: { enableAutoUpdate: false },
      security: { auth: { selectedType: 'openai' } } } }),
    args: (node, task) => ['--auth-type', 'openai', '--openai-base-url', `${node.base}/v1`, '--openai-api-key', 'none', '--model', node.model,
      '--yolo', '--system-prompt', 'You help.', '--core-tools', 'read_file,list_directory', '--output-format', 'stream-json', '--max-session-turns', '4', '-p', task],
    env: (node) => ({ QWEN_CODE_NO_RELAUNCH: '1', QWEN_CODE_MAX_OUTPUT_TOKENS: String(node.answer) }),
    read: (file) => call('read_file', { file_path: file }),
  },
};

async function give({ script, settings, args, env, read }, node, task) {
  const desk = makeDesk(settings(node));
  const asked = node.requests.length;
  try {
    const ended = await runAgent(desk, script, args(node, task(path.join(desk.work, 'fox.txt'), read)), env(node));
    assert.equal(ended.code, 0, `${ended.stdout}\n${ended.stderr}`);
    assert.equal(ended.outward, '');
    const requests = node.requests.slice(asked).filter(({ method }) => method === 'POST');
    return { said: ended.stdout, requests, fox: fs.readFileSync(path.join(desk.work, 'fox.txt'), 'utf8') };
  } finally {
    desk.stop();
  }
}

for (const [name, agent] of Object.entries(agents)) {
  describe(name, () => {
    test('a session with the bundled model', async () => {
      const { requests } = await give(agent, both.real, () => story);
      assert.ok(requests.length > 0);
      for (const { body, answer } of requests) { // some ask again where an answer was cut off
        assert.equal(JSON.parse(body).stream, true);
        assert.ok(JSON.parse(body).tools.length > 1);
        assert.ok(answer.split('\n\n').length > 10, answer);
      }
    });

    test('a file is read, and what it says is told', async () => {
      const { said, requests } = await give(agent, both.echo, (file, read) => read(file));
      assert.equal(requests.length, 2);
      assert.match(requests[1].body, /The fox ran home\./);
      assert.match(said, /The fox ran home\./);
    });
  });
}
