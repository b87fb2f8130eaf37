/** What must not compile: the compiler says so where one of these does. */
import { Medley } from './client.js';

export async function misuse(medley: Medley): Promise<unknown[]> {
  const messages = [{ role: 'user' as const, content: 'x' }];
  return [
    // @ts-expect-error: there is no such path
    await medley.get('/v1/weather'),
    // @ts-expect-error: a path of another method
    await medley.get('/v1/chat/completions'),
    // @ts-expect-error: no model
    await medley.post('/v1/chat/completions', { messages }),
    // @ts-expect-error: another type
    await medley.post('/v1/chat/completions', { model: 'm', messages, max_tokens: '5' }),
    // @ts-expect-error: no such field
    await medley.post('/v1/completions', { model: 'm', prompt: 'x', colour: 'red' }),
    // @ts-expect-error: an answer has no such member
    (await medley.post('/tokenize', { content: 'x' })).words,
  ];
}
