// Loaded into a client's own process (node --require): it reaches this machine only, and what it
// tried beside that is noted in the file OUTWARD.
'use strict';
const fs = require('node:fs');
const net = require('node:net');

const home = new Set(['127.0.0.1', '::1', 'localhost', undefined, null, '']);
const connect = net.Socket.prototype.connect;

net.Socket.prototype.connect = function (...args) {
  const first = Array.isArray(args[0]) ? args[0][0] : args[0];
  const to = first !== null && typeof first === 'object' ? first : typeof first === 'number' ? { port: first, host: args[1] } : { path: first };
  if (to.path || home.has(to.host)) return connect.apply(this, args);
  if (process.env.OUTWARD) fs.appendFileSync(process.env.OUTWARD, `${to.host}:${to.port}\n`);
  process.nextTick(() => this.destroy(new Error(`${to.host} is not this machine`)));
  return this;
};
