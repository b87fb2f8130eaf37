// A server of the Model Context Protocol with two tools, on the standard input and output.
'use strict';
const { Server } = require('@modelcontextprotocol/sdk/server/index.js');
const { StdioServerTransport } = require('@modelcontextprotocol/sdk/server/stdio.js');
const { CallToolRequestSchema, ListToolsRequestSchema } = require('@modelcontextprotocol/sdk/types.js');

const number = { type: 'integer', minimum: 0, maximum: 99 };
const object = (properties) => ({ type: 'object', properties, required: Object.keys(properties), additionalProperties: false });
const tools = {
  add: { description: 'adds two numbers', inputSchema: object({ a: number, b: number }), run: ({ a, b }) => `${a} + ${b} = ${a + b}` },
  greet: { description: 'greets', inputSchema: object({ name: { type: 'string', minLength: 1, maxLength: 8 } }), run: ({ name }) => `Hello ${name}` },
};

const server = new Server({ name: 'tools-of-the-test', version: '1' }, { capabilities: { tools: {} } });
server.setRequestHandler(ListToolsRequestSchema, () => ({
  tools: Object.entries(tools).map(([name, { description, inputSchema }]) => ({ name, description, inputSchema })),
}));
server.setRequestHandler(CallToolRequestSchema, ({ params }) => ({ content: [{ type: 'text', text: tools[params.name].run(params.arguments) }] }));
server.connect(new StdioServerTransport());
