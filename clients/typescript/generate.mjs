// Makes openapi.ts from the document that the build has made: node clients/typescript/generate.mjs OPENAPI.json
// The test conformance-typescript fails while the file is another one.
import { readFileSync, writeFileSync } from 'node:fs';
import openapiTS, { astToString } from 'openapi-typescript';

// What an operation or path has not is left out; the package writes it as `never`.
const unneeded = /^ +(get|put|post|delete|options|head|patch|trace|query|header|path|cookie|requestBody)\?: never;\n/gm;
const empty = /^ +parameters: \{\n +\};\n/gm;

export async function makeTypes(document) {
  const text = astToString(await openapiTS(document));
  return `/** Made from the OpenAPI document by generate.mjs: do not edit. */\n${text.replace(unneeded, '').replace(empty, '').replace(/ +headers: \{\n +\[name: string\]: unknown;\n +\};\n/g, '')}`;
}

if (process.argv[2]) writeFileSync(new URL('openapi.ts', import.meta.url), await makeTypes(JSON.parse(readFileSync(process.argv[2], 'utf8'))));
