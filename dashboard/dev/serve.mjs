// The built page with a made-up cluster behind it, under the same policy as the node's:
//     node dashboard/dev/serve.mjs --page build/page --scenario home --port 5180 [--token T]
//                                  [--scopes read,generate]
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { createMock } from './mock.mjs';

export const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; manifest-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.webmanifest': 'application/manifest+json' };

export function servePage(page, options, port = 0) {
  const mock = createMock(options);
  const server = createServer(async (request, response) => {
    try {
      if (await mock.handle(request, response)) return;
      const name = new URL(request.url, 'http://mock').pathname;
      const file = path.join(page, path.normalize(name === '/' ? '/index.html' : name));
      const bytes = await readFile(file);
      response.writeHead(200, { 'content-type': TYPES[path.extname(file)] ?? 'text/plain', 'content-security-policy': POLICY });
      response.end(bytes);
    } catch {
      response.writeHead(404).end();
    }
  });
  return new Promise((done) => {
    server.listen(port, '127.0.0.1', () => done({ mock, server, url: `http://127.0.0.1:${server.address().port}` }));
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({ options: { page: { type: 'string', default: 'build/page' }, scenario: { type: 'string' }, port: { type: 'string', default: '5180' }, token: { type: 'string' }, scopes: { type: 'string' } } });
  const { url } = await servePage(values.page, { ...values, scopes: values.scopes?.split(',') }, Number(values.port));
  console.log(url);
}
