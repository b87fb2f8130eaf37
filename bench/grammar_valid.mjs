// Whether constrained texts are valid: random walks through masks (bench/grammar.c), each checked with Ajv, which knows
// nothing of the grammar.
//
//     build/release/bench/grammar WALKS --print | node bench/grammar_valid.mjs
//
// Prints how many are valid; fails where one is not, or where there is none.
import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);
const Ajv = require('ajv/dist/2020').default;
const addFormats = require('ajv-formats').default;
// Without a precision Ajv divides and compares with parseInt(), which reads 5.4e+32 as 5.
const ajv = addFormats(new Ajv({ strict: false, multipleOfPrecision: 6 }));
const checks = new Map(); // by a schema's text
let n = 0, wrong = 0;

function isValid(check, text) {
  try {
    return check(JSON.parse(text));
  } catch {
    return false;
  }
}

function take(record) {
  const tab = record.indexOf('\t'), schema = record.slice(0, tab), text = record.slice(tab + 1);
  if (!checks.has(schema)) checks.set(schema, ajv.compile(JSON.parse(schema)));
  n++;
  if (isValid(checks.get(schema), text)) return;
  wrong++;
  console.log(`not valid: ${text.slice(0, 300)}\n    under ${schema.slice(0, 200)}`);
}

let rest = '';
for await (const piece of process.stdin.setEncoding('utf8')) {
  const records = (rest + piece).split('\0');
  rest = records.pop(); // not whole yet
  records.forEach(take);
}
console.log(`${n} texts of ${checks.size} schemas: ${n - wrong} valid, ${wrong} not`);
process.exit(wrong || !n ? 1 : 0);
