/** Asks the first model of a node for a story, and prints it as it is written.
 *
 *     node example.js http://127.0.0.1:8080 ["What to ask for"] */
import { Medley, MedleyError } from './client.js';

async function main(base: string, ask: string): Promise<void> {
  const medley = new Medley({ base, ...(process.env.MEDLEY_TOKEN ? { token: process.env.MEDLEY_TOKEN } : {}) });
  const { data } = await medley.get('/v1/models');
  const model = data[0]?.id;
  if (model === undefined) throw new Error(`${base} has no model: place one with \`medley place MODEL\``);
  for await (const chunk of medley.stream('/v1/chat/completions', { model, messages: [{ role: 'user', content: ask }], max_tokens: 200 })) {
    if ('choices' in chunk) process.stdout.write(chunk.choices[0]?.delta.content ?? '');
  }
  process.stdout.write('\n');
}

main(process.argv[2] ?? 'http://127.0.0.1:8080', process.argv[3] ?? 'Tell me a story about a fox.').catch((error: unknown) => {
  console.error(error instanceof MedleyError ? `${error.status}: ${error.message}` : error);
  process.exitCode = 1;
});
