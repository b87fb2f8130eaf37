// Stands between a client and a node, and keeps what was asked and answered.
'use strict';
const http = require('node:http');

// {base, requests: [{method, path, body, status}], stop}. `base` is the node's.
async function record(base) {
  const requests = [];
  const to = new URL(base);
  const proxy = http.createServer((request, response) => {
    const kept = { method: request.method, path: request.url, body: '', answer: '', status: 0 };
    requests.push(kept);
    const headers = { ...request.headers, host: to.host };
    const onward = http.request({ host: to.hostname, port: to.port, method: request.method, path: request.url, headers }, (answer) => {
      kept.status = answer.statusCode;
      answer.on('data', (bytes) => { kept.answer += bytes; });
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    onward.on('error', () => response.destroy());
    request.on('data', (bytes) => { kept.body += bytes; });
    request.pipe(onward);
  });
  await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  return {
    base: `http://127.0.0.1:${proxy.address().port}`, requests,
    refused: () => requests.filter(({ status }) => status >= 400 || status === 0).map(({ method, path, status, answer }) => `${method} ${path}: ${status} ${answer}`),
    stop: () => new Promise((resolve) => { proxy.close(resolve); proxy.closeAllConnections(); }),
  };
}

module.exports = { record };
