// Starts echo_node: a server whose model repeats the last message, as a model of Hermes' format would write it.
'use strict';
const { spawn } = require('node:child_process');

async function startEcho() {
  const child = spawn(process.env.MEDLEY_ECHO ?? 'build/release/tests/conformance/echo-node', [], { stdio: ['pipe', 'pipe', 'inherit'] });
  const exit = new Promise((resolve) => child.once('close', (code, signal) => resolve(code ?? signal)));
  const port = await new Promise((resolve, reject) => {
    child.stdout.setEncoding('utf8').once('data', (text) => resolve(Number(text)));
    exit.then((code) => reject(new Error(`echo-node ended with ${code}`)));
  });
  return {
    base: `http://127.0.0.1:${port}`, model: 'fake-model',
    async stop() {
      child.stdin.end();
      const code = await exit;
      if (code !== 0) throw new Error(`echo-node ended with ${code}`);
    },
  };
}

// What a model writes to call a tool.
const call = (name, args) => `<tool_call>${JSON.stringify({ name, arguments: args })}</tool_call>`;

module.exports = { startEcho, call };
