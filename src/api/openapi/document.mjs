// The OpenAPI document of a node's HTTP API, from the tables beside this file. Part of the build.
//
//     node document.mjs VERSION OUT.json OUT.c
//
// OUT.c defines `openapi_document` and its size (src/api/openapi.h).
import { writeFileSync } from 'node:fs';
import * as dialects from './dialects.mjs';
import * as node from './node.mjs';
import * as openai from './openai.mjs';

const ERRORS = ['Error', 'AnthropicError', 'OllamaError'];

function parametersOf({ path, query = {} }) {
  const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => ({ name, in: 'path', required: true, schema: { type: 'string' } }));
  const inQuery = Object.entries(query).map(([name, schema]) => ({ name, in: 'query', schema }));
  return inPath.length + inQuery.length ? { parameters: [...inPath, ...inQuery] } : {};
}

function operation(route) {
  const content = Object.fromEntries(Object.entries(route.answer ?? {}).map(([type, schema]) => [type, { schema }]));
  const error = { $ref: `#/components/responses/${route.error ?? 'Error'}` };
  return {
    summary: route.summary, ...parametersOf(route),
    ...(route.form ? { requestBody: { required: true, content: { 'multipart/form-data': { schema: route.form } } } } : {}),
    ...(route.body ? { requestBody: { required: true, content: { 'application/json': { schema: route.body } } } } : {}),
    responses: { ...(route.answer ? { 200: { description: 'Done', content } } : { 501: error }), '4XX': error, 503: error },
    security: route.scope.length ? [{}, { token: [] }] : [],
    'x-medley-scopes': route.scope, ...(route.node ? { 'x-medley-node': true } : {}),
  };
}

export function makeDocument(version) {
  const paths = {};
  for (const route of [...openai.routes, ...dialects.routes, ...node.routes]) (paths[route.path] ??= {})[route.method] = operation(route);
  return {
    openapi: '3.1.0',
    info: {
      title: 'Medley', version, license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      description: 'The HTTP API of a node. Of text/event-stream the schema is that of each event\'s data, of application/x-ndjson that of each line. '
        + 'A path needs a token with one of x-medley-scopes where the node asks for tokens; those with x-medley-node are a node\'s of a cluster alone.',
    },
    paths,
    components: {
      responses: Object.fromEntries(ERRORS.map((name) => [name, { description: 'Refused: the text says why, and what to do',
        content: { 'application/json': { schema: { $ref: `#/components/schemas/${name}` } } } }])),
      schemas: { ...openai.schemas, ...dialects.schemas, ...node.schemas },
      securitySchemes: { token: { type: 'http', scheme: 'bearer' } },
    },
  };
}

function main([version, json, source]) {
  const text = JSON.stringify(makeDocument(version)).replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
  const rows = Buffer.from(text).toJSON().data.join(',').match(/.{1,98},|.+$/g);
  writeFileSync(json, text);
  writeFileSync(source, `#include "api/openapi.h"\n\nconst char openapi_document[] = {\n${rows.join('\n')}\n};\nconst size_t openapi_document_size = sizeof openapi_document;\n`);
}

if (process.argv.length > 4) main(process.argv.slice(2));
