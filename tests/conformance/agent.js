// Runs a coding agent's command line once, without a person: in folders of its own, and so that it reaches this machine only.
'use strict';
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

const modules = path.join(__dirname, '..', '..', 'node_modules');

// {home, work, stop}: an empty home, and a folder with a file to work on.
function makeDesk(settings) {
  const desk = fs.mkdtempSync(path.join(os.tmpdir(), 'medley-agent-'));
  const home = path.join(desk, 'home'), work = path.join(desk, 'work');
  for (const folder of [home, work]) fs.mkdirSync(folder);
  fs.writeFileSync(path.join(work, 'fox.txt'), 'The fox ran home.\n');
  for (const [name, content] of Object.entries(settings)) {
    const file = path.join(home, name);
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(file, JSON.stringify(content));
  }
  return { home, work, outward: path.join(desk, 'outward'), stop: () => fs.rmSync(desk, { recursive: true, force: true }) };
}

// {code, stdout, stderr, outward}: `outward` lists what it tried to reach elsewhere.
async function runAgent(desk, script, args, env = {}) {
  const child = spawn(process.execPath, ['--require', path.join(__dirname, 'stay_home.js'), path.join(modules, script), ...args], {
    cwd: desk.work, stdio: ['ignore', 'pipe', 'pipe'], timeout: 240000, killSignal: 'SIGKILL',
    env: { PATH: process.env.PATH, HOME: desk.home, OUTWARD: desk.outward, NO_COLOR: '1', CI: '1', ...env },
  });
  const said = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'])
    child[name].setEncoding('utf8').on('data', (text) => { said[name] += text; });
  const [code, signal] = await new Promise((resolve) => child.once('close', (...how) => resolve(how)));
  const outward = fs.existsSync(desk.outward) ? fs.readFileSync(desk.outward, 'utf8') : '';
  return { code: code ?? signal, ...said, outward };
}

module.exports = { makeDesk, runAgent };
