// Starts a real node, `medley up`, of a cluster of its own.
'use strict';
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { run, model, devices } = require('./server.js');

function freePort() {
  return new Promise((resolve) => {
    const server = net.createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

// {base, stop}
async function startNode({ env = {} } = {}) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'medley-node-'));
  fs.copyFileSync(model, path.join(folder, 'demo.gguf'));
  const node = run(['up', '--new', '--name', 'studio', '-t', '1', '--no-discovery', '--devices', devices, '--listen', `127.0.0.1:${await freePort()}`, '--api', '127.0.0.1:0'],
    { ...process.env, MEDLEY_STATE_DIR: path.join(folder, 'state'), HOME: folder, ...env });
  const line = /http:\/\/127\.0\.0\.1:(\d+)/; // the API's
  const port = await new Promise((resolve, reject) => {
    for (const name of ['stdout', 'stderr'])
      node.child[name].on('data', () => {
        const found = line.exec(node.output.stdout + node.output.stderr);
        if (found) resolve(Number(found[1]));
      });
    node.exit.then(({ code, stdout, stderr }) => reject(new Error(`medley up ended with ${code}: ${stdout}${stderr}`)));
  });
  return {
    base: `http://127.0.0.1:${port}`, file: path.join(folder, 'demo.gguf'),
    async stop() {
      node.child.kill('SIGTERM');
      const { code, signal, stderr } = await node.exit;
      fs.rmSync(folder, { recursive: true, force: true });
      if (code !== 0) throw new Error(`medley up ended with ${code ?? signal}: ${stderr}`);
    },
  };
}

module.exports = { startNode };
