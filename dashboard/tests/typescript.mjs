// Lets node's test runner load the dashboard's modules as they are, in TypeScript:
// node --import ./dashboard/tests/typescript.mjs --test dashboard/tests/NAME.test.ts
import { register } from 'node:module';

register('./typescript_hooks.mjs', import.meta.url);
