// What the tests of frameworks share: a tool, its schema, and a node of each kind.
'use strict';
const assert = require('node:assert');
const Ajv = require('ajv/dist/2020').default;
const { start } = require('./server.js');
const { startEcho, call } = require('./echo.js');
const { record } = require('./recorder.js');

const parameters = {
  type: 'object', additionalProperties: false, required: ['city', 'unit'],
  properties: { city: { type: 'string', maxLength: 8 }, unit: { enum: ['C', 'F'] } },
};
const valid = new Ajv().compile(parameters);
const sunny = ({ city }) => `Sun in ${city}`;
// What makes the model that repeats the last message call the tool.
const please = call('weather', { city: 'Paris', unit: 'C' });
const story = 'Tell me a story about a fox.';

function checkArguments(args) {
  assert.ok(valid(args), JSON.stringify(args));
}

// A node with the bundled model, and one that says what it is told; both behind a recorder. A call's JSON may be full of
// blanks, so there is room for it.
async function startBoth(options = { context: 1536, args: ['--rope-scaling', 'yarn', '--rope-scale', '4'] }) {
  const server = await start(options), echo = await startEcho();
  const real = await record(server.base), echoed = await record(echo.base);
  return {
    real: { ...real, model: server.model }, echo: { ...echoed, model: echo.model },
    // Nothing that a client asked was refused.
    async stop() {
      const refused = [...real.refused(), ...echoed.refused()];
      const asked = real.requests.length + echoed.requests.length;
      for (const one of [real, echoed, server, echo]) await one.stop();
      assert.ok(asked > 0);
      assert.deepEqual(refused, []);
    },
  };
}

// Of a call by the bundled model: it likes blanks.
const callTokens = 400;

module.exports = { startBoth, callTokens, parameters, checkArguments, sunny, please, story };
