// OpenAI's interface: chats, completions, vectors; and what stands beside it: rerank, tokens.
// The fields are those of the tables in request_json.c and request_small.c (tests/unit/test_openapi.c).
import { answer, anyObject, anything, between, count, either, flag, integer, list, map, number, only, orNull, ref, request, text } from './shapes.mjs';

const VOCAB = 4 * 1024 * 1024;
const INT32_MAX = 2 ** 31 - 1;
const UINT32_MAX = 2 ** 32 - 1;

export const toolName = { type: 'string', pattern: '^[A-Za-z0-9_.-]{1,256}$' };
const stopText = { type: 'string', minLength: 1, maxLength: 512 };
const tokenId = integer(0, VOCAB - 1);
const tokenIds = list(tokenId);
const prompts = either(text, tokenIds, list(either(text, tokenIds), { minItems: 1, maxItems: 256 }));

const sampling = {
  temperature: between(0, 2), top_k: integer(0, VOCAB), top_p: between(0, 1), min_p: between(0, 1), typical_p: between(0, 1),
  repeat_penalty: between(0.01, 10), frequency_penalty: between(-2, 2), presence_penalty: between(-2, 2),
  seed: { type: 'integer', minimum: -(2 ** 53), maximum: 2 ** 53 },
};
const grammars = {
  response_format: ref('ResponseFormat'), guided_json: either(anyObject, flag, text), guided_regex: text, guided_choice: list(text),
  guided_grammar: text, grammar: text,
};
// They are taken, and change nothing.
const ignored = {
  user: text, metadata: anyObject, store: flag, service_tier: text, prompt_cache_key: text, prompt_cache_retention: text, safety_identifier: text,
};
const generation = {
  n: integer(1, 16), stream: flag, stop: either(stopText, list(stopText, { maxItems: 16 })),
  stream_options: request({}, { include_usage: flag, include_obfuscation: only(false) }),
  logit_bias: { type: 'object', patternProperties: { '^[0-9]{1,7}$': between(-100, 100) }, additionalProperties: false },
  ...sampling, ...grammars, ...ignored,
};

// What a picture comes as: PNG, JPEG or WebP, 20 MiB at most.
export const dataUrl = { type: 'string', pattern: '^data:image/[a-z.+-]+;base64,[A-Za-z0-9+/]+=?=?$', description: 'data:image/png;base64,…' };
const textPart = { type: 'object', properties: { type: only('text'), text }, required: ['type', 'text'], additionalProperties: false };
const imagePart = {
  type: 'object', required: ['type', 'image_url'], additionalProperties: false,
  properties: { type: only('image_url'), image_url: request({ url: dataUrl }, { detail: only('auto') }) },
};
const content = either(text, list(textPart, { minItems: 1 }));
const shown = either(text, list(either(textPart, imagePart), { minItems: 1 }));
const functionCall = {
  type: 'object', required: ['id', 'function'],
  properties: { id: text, type: only('function'),
    function: { type: 'object', required: ['name', 'arguments'], properties: { name: text, arguments: { ...text, description: 'a JSON object' } } } },
};
const said = { name: text, annotations: anything, tool_call_id: text };
const message = {
  oneOf: [
    request({ role: only('system', 'developer'), content }, said),
    request({ role: only('user'), content: shown }, said),
    request({ role: only('tool'), content, tool_call_id: text }, { name: text, annotations: anything }),
    request({ role: only('assistant'), content }, { ...said, reasoning_content: text, tool_calls: list(functionCall, { maxItems: 128 }) }),
    request({ role: only('assistant'), tool_calls: list(functionCall, { minItems: 1, maxItems: 128 }) },
      { ...said, content: { type: 'null' }, reasoning_content: text }),
  ],
};

const usage = answer({ prompt_tokens: count, completion_tokens: count, total_tokens: count, prompt_tokens_details: answer({ cached_tokens: count }) });
// What was guessed, where anything was; as llama-server says it.
const drafts = { timings: answer({ draft_n: count, draft_n_accepted: count }) };
const finish = only('stop', 'length', 'tool_calls');
const tokenShown = { token: text, logprob: number, bytes: list(integer(0, 255)) };
const chatLogprobs = orNull(answer({ content: list(answer({ ...tokenShown, top_logprobs: list(answer(tokenShown)) })), refusal: { type: 'null' } }));
const textLogprobs = orNull(answer({ tokens: list(text), token_logprobs: list(orNull(number)), top_logprobs: list(orNull(map(number))), text_offset: list(count) }));
const call = answer({ id: text, type: only('function'), function: answer({ name: text, arguments: text }) });
const head = (object) => ({ id: text, object: only(object), created: count, model: text });

// At most 168 hours.
const windowText = { type: 'string', pattern: '^[1-9][0-9]{0,5}[hms]$' };

export const schemas = {
  Error: answer({ error: answer({ message: text, text, type: orNull(text), param: orNull(text), code: orNull(text) }) }),
  Model: answer({ id: text, object: only('model'), created: count, owned_by: text }),
  Usage: usage,
  ResponseFormat: {
    oneOf: [
      { type: 'object', properties: { type: only('text') }, required: ['type'], additionalProperties: false },
      { type: 'object', properties: { type: only('json_object') }, required: ['type'], additionalProperties: false },
      { type: 'object', required: ['type', 'json_schema'], additionalProperties: false,
        properties: { type: only('json_schema'), json_schema: { type: 'object', additionalProperties: false,
          properties: { name: anything, description: anything, strict: anything, schema: either(anyObject, flag, { type: 'null' }) } } } },
    ],
  },
  Tool: {
    type: 'object', required: ['type', 'function'],
    properties: { type: only('function'), function: request({ name: toolName }, { description: text, parameters: anyObject, strict: flag }) },
  },
  ToolChoice: either(only('none', 'auto', 'required'),
    { type: 'object', required: ['function'], properties: { function: { type: 'object', required: ['name'], properties: { name: text } } } }),
  Message: message,
  ChatRequest: request({ model: text, messages: list(ref('Message'), { minItems: 1 }) }, {
    max_tokens: integer(1, INT32_MAX), max_completion_tokens: integer(1, INT32_MAX), logprobs: flag, top_logprobs: integer(0, 20), ...generation,
    modalities: { type: 'array', items: only('text'), minItems: 1, maxItems: 1 }, verbosity: only('medium'), prediction: anyObject,
    tools: list(ref('Tool'), { maxItems: 128 }), tool_choice: ref('ToolChoice'), parallel_tool_calls: flag,
    reasoning_effort: only('none', 'minimal', 'low', 'medium', 'high', 'xhigh'),
    chat_template_kwargs: { type: 'object', propertyNames: { not: only('messages', 'tools', 'add_generation_prompt') } },
  }),
  ChatCompletion: answer({
    ...head('chat.completion'), usage: ref('Usage'),
    choices: list(answer({ index: count, logprobs: chatLogprobs, finish_reason: finish,
      message: answer({ role: only('assistant'), content: orNull(text), refusal: { type: 'null' } }, { reasoning_content: text, tool_calls: list(call) }) })),
  }, drafts),
  ChatCompletionChunk: either(answer({
    ...head('chat.completion.chunk'),
    choices: list(answer({ index: count, logprobs: chatLogprobs, finish_reason: orNull(finish),
      delta: answer({}, { role: only('assistant'), content: text, reasoning_content: text,
        tool_calls: list(answer({ index: count, function: answer({ arguments: text }, { name: text }) }, { id: text, type: only('function') })) }) })),
  }, { usage: orNull(ref('Usage')), ...drafts }), ref('Error')),
  CompletionRequest: request({ model: text, prompt: prompts }, {
    max_tokens: integer(0, INT32_MAX), logprobs: integer(0, 20), echo: flag, suffix: text, best_of: integer(1, 1), ...generation,
  }),
  Completion: answer({ ...head('text_completion'), usage: ref('Usage'),
    choices: list(answer({ index: count, text, logprobs: textLogprobs, finish_reason: finish })) }, drafts),
  CompletionChunk: either(answer({ ...head('text_completion'),
    choices: list(answer({ index: count, text, logprobs: textLogprobs, finish_reason: orNull(finish) })) }, { usage: orNull(ref('Usage')), ...drafts }), ref('Error')),
  EmbeddingsRequest: request({ model: text, input: prompts },
    { encoding_format: only('float', 'base64'), user: text, dimensions: integer(1, UINT32_MAX) }),
  Embeddings: answer({ object: only('list'), model: text, usage: answer({ prompt_tokens: count, total_tokens: count }),
    data: list(answer({ object: only('embedding'), index: count, embedding: either(list(number), text) })) }),
  RerankRequest: request({ model: text, query: text, documents: list(either(text, request({ text })), { minItems: 1, maxItems: 256 }) },
    { top_n: integer(1, UINT32_MAX), return_documents: flag, user: text }),
  Rerank: answer({ model: text, results: list(answer({ index: count, relevance_score: number }, { document: answer({ text }) })),
    usage: answer({ prompt_tokens: count, total_tokens: count }) }),
  TokenizeRequest: request({ content: text }, { model: text, add_special: flag, parse_special: flag }),
  Tokens: answer({ tokens: list(count) }),
  File: answer({ id: text, object: only('file'), bytes: count, created_at: count, expires_at: count, filename: text, purpose: only('batch', 'batch_output'),
    status: only('processed'), status_details: { type: 'null' } }),
  FileForm: { type: 'object', required: ['purpose', 'file'], additionalProperties: false,
    properties: { purpose: only('batch'), file: { type: 'string', contentMediaType: 'application/jsonl' } } },
  BatchRequest: request({ input_file_id: text, endpoint: only('/v1/chat/completions', '/v1/completions', '/v1/embeddings'), completion_window: windowText },
    { metadata: anyObject }),
  Batch: answer({ id: text, object: only('batch'), endpoint: text, input_file_id: text, completion_window: text,
    status: only('in_progress', 'completed', 'failed', 'expired', 'cancelled'),
    errors: orNull(answer({ object: only('list'), data: list(answer({ code: text, param: { type: 'null' }, line: orNull(count), message: text })) })),
    output_file_id: orNull(text), error_file_id: orNull(text), created_at: count, expires_at: count,
    ...Object.fromEntries(['in_progress', 'finalizing', 'completed', 'failed', 'expired', 'cancelling', 'cancelled'].map((name) => [`${name}_at`, orNull(count)])),
    request_counts: answer({ total: count, completed: count, failed: count }), metadata: orNull(anyObject) }),
  DetokenizeRequest: request({ tokens: tokenIds }, { model: text }),
  DetokenizedText: answer({ content: text }),
};

const models = { 'application/json': answer({ object: only('list'), data: list(ref('Model')) }) };
const listOf = (name) => ({ 'application/json': answer({ object: only('list'), data: list(ref(name)), has_more: flag }) });
const page = { limit: integer(1, 9999999), after: text };
export const routes = [
  { method: 'get', path: '/v1/models', scope: ['read', 'generate'], summary: 'The models that can be asked for', answer: models },
  { method: 'get', path: '/v1/models/{name}', scope: ['read', 'generate'], summary: 'One of them', answer: { 'application/json': ref('Model') } },
  { method: 'post', path: '/v1/chat/completions', scope: ['generate'], summary: 'The next message of a chat', body: ref('ChatRequest'),
    answer: { 'application/json': ref('ChatCompletion'), 'text/event-stream': ref('ChatCompletionChunk') } },
  { method: 'post', path: '/v1/completions', scope: ['generate'], summary: 'How a text goes on', body: ref('CompletionRequest'),
    answer: { 'application/json': ref('Completion'), 'text/event-stream': ref('CompletionChunk') } },
  { method: 'post', path: '/v1/embeddings', scope: ['generate'], summary: 'A vector of each text', body: ref('EmbeddingsRequest'), answer: { 'application/json': ref('Embeddings') } },
  { method: 'post', path: '/v1/files', scope: ['generate'], summary: 'Keeps a file of requests for a batch', form: ref('FileForm'), answer: { 'application/json': ref('File') } },
  { method: 'get', path: '/v1/files', scope: ['generate'], summary: 'The files of this client, the newest first', query: { ...page, purpose: text }, answer: listOf('File') },
  { method: 'get', path: '/v1/files/{id}', scope: ['generate'], summary: 'One of them', answer: { 'application/json': ref('File') } },
  { method: 'delete', path: '/v1/files/{id}', scope: ['generate'], summary: 'Deletes it',
    answer: { 'application/json': answer({ id: text, object: only('file'), deleted: only(true) }) } },
  { method: 'get', path: '/v1/files/{id}/content', scope: ['generate'], summary: 'What is in it', answer: { 'application/jsonl': text } },
  { method: 'post', path: '/v1/batches', scope: ['generate'], summary: 'Works on a file of requests while nobody else asks for anything',
    body: ref('BatchRequest'), answer: { 'application/json': ref('Batch') } },
  { method: 'get', path: '/v1/batches', scope: ['generate'], summary: 'The batches of this client, the newest first', query: page, answer: listOf('Batch') },
  { method: 'get', path: '/v1/batches/{id}', scope: ['generate'], summary: 'One of them', answer: { 'application/json': ref('Batch') } },
  { method: 'post', path: '/v1/batches/{id}/cancel', scope: ['generate'], summary: 'Ends it: what it has answered stays', answer: { 'application/json': ref('Batch') } },
  { method: 'post', path: '/v1/rerank', scope: ['generate'], summary: 'A score of each document', body: ref('RerankRequest'), answer: { 'application/json': ref('Rerank') } },
  { method: 'post', path: '/tokenize', scope: ['generate'], summary: 'The tokens of a text', body: ref('TokenizeRequest'), answer: { 'application/json': ref('Tokens') } },
  { method: 'post', path: '/detokenize', scope: ['generate'], summary: 'The text of tokens', body: ref('DetokenizeRequest'), answer: { 'application/json': ref('DetokenizedText') } },
];
