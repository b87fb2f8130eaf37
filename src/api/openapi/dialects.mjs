// The interfaces of others over the same generator: OpenAI's responses, Anthropic's, Ollama's, llama-server's.
import { answer, anyObject, anything, between, count, either, flag, integer, list, number, only, orNull, ref, request, text } from './shapes.mjs';
import { dataUrl, toolName } from './openai.mjs';

const INT32_MAX = 2 ** 31 - 1;
const open = (required, properties) => ({ type: 'object', required, properties });
const json = (schema) => ({ 'application/json': schema });

// ---- responses ----

const part = open(['type', 'text'], { type: only('input_text', 'output_text'), text });
const parts = either(text, list(part));
const picture = open(['type', 'image_url'], { type: only('input_image'), image_url: dataUrl, detail: orNull(only('auto')) });
const shownParts = either(text, list(either(part, picture)));
const item = {
  anyOf: [
    open(['role', 'content'], { type: orNull(only('message')), role: only('user'), content: shownParts }),
    open(['role', 'content'], { type: orNull(only('message')), role: only('assistant', 'system', 'developer'), content: parts }),
    open(['type', 'call_id', 'name', 'arguments'], { type: only('function_call'), call_id: text, name: text, arguments: text }),
    open(['type', 'call_id', 'output'], { type: only('function_call_output'), call_id: text, output: parts }),
    open(['type'], { type: only('reasoning') }),
  ],
};
const format = either(
  open(['type'], { type: only('text') }), open(['type'], { type: only('json_object') }),
  { ...request({ type: only('json_schema') }, { name: anything, description: anything, strict: anything, schema: either(anyObject, flag) }) },
);
const outputText = answer({ type: only('output_text'), annotations: list(anything), logprobs: list(anything), text });
const status = only('in_progress', 'completed', 'incomplete');
const outputItem = either(
  answer({ type: only('message'), id: text, role: only('assistant'), status, content: list(outputText) }),
  answer({ type: only('reasoning'), id: text, summary: list(anything), content: list(answer({ type: only('reasoning_text'), text })) }),
  answer({ type: only('function_call'), id: text, call_id: text, name: text, arguments: text, status }),
);
const event = (type, more) => answer({ type: only(type), sequence_number: count, ...more });
const place = { output_index: count, item_id: text };

const responses = {
  ResponseRequest: request({ model: text, input: either(text, list(ref('ResponseItem'), { minItems: 1 })) }, {
    instructions: text, previous_response_id: text, stream: flag, temperature: between(0, 2), top_p: between(0, 1), max_output_tokens: integer(1, INT32_MAX),
    tools: list(open(['type', 'name'], { type: only('function'), name: toolName, description: orNull(text), parameters: orNull(anyObject), strict: orNull(flag) }), { maxItems: 128 }),
    tool_choice: either(only('none', 'auto', 'required'), open(['name'], { name: text })), parallel_tool_calls: flag,
    reasoning: open([], { effort: orNull(only('none', 'minimal', 'low', 'medium', 'high', 'xhigh')) }),
    text: open([], { format: orNull(ref('ResponseTextFormat')), verbosity: orNull(only('medium')) }),
    metadata: anyObject, store: flag, user: text, service_tier: text, truncation: only('disabled'), prompt_cache_key: text, safety_identifier: text,
    include: list(anything), background: only(false), prompt_cache_retention: text, stream_options: anyObject,
  }),
  ResponseItem: item,
  ResponseTextFormat: format,
  ResponseOutputItem: outputItem,
  Response: answer({
    id: text, object: only('response'), created_at: count, status, error: { type: 'null' },
    incomplete_details: orNull(answer({ reason: only('max_output_tokens') })), instructions: { type: 'null' }, metadata: anyObject, model: text,
    parallel_tool_calls: flag, tools: list(anything), temperature: number, top_p: number,
    tool_choice: either(only('none', 'auto', 'required'), answer({ type: only('function'), name: text })), output: list(ref('ResponseOutputItem')),
  }, {
    usage: answer({ input_tokens: count, input_tokens_details: answer({ cached_tokens: count }), output_tokens: count,
      output_tokens_details: answer({ reasoning_tokens: count }), total_tokens: count }),
  }),
  ResponseEvent: either(
    ...['created', 'in_progress', 'completed', 'incomplete'].map((name) => event(`response.${name}`, { response: ref('Response') })),
    ...['added', 'done'].map((name) => event(`response.output_item.${name}`, { output_index: count, item: ref('ResponseOutputItem') })),
    ...['added', 'done'].map((name) => event(`response.content_part.${name}`, { ...place, content_index: count,
      part: either(outputText, answer({ type: only('reasoning_text'), text })) })),
    event('response.output_text.delta', { ...place, content_index: count, delta: text, logprobs: list(anything) }),
    event('response.output_text.done', { ...place, content_index: count, text, logprobs: list(anything) }),
    event('response.reasoning_text.delta', { ...place, content_index: count, delta: text }),
    event('response.reasoning_text.done', { ...place, content_index: count, text }),
    event('response.function_call_arguments.delta', { ...place, delta: text }),
    event('response.function_call_arguments.done', { ...place, arguments: text }),
    ref('Error'),
  ),
};

// ---- Anthropic ----

const textBlock = open(['type', 'text'], { type: only('text'), text });
const texts = either(text, list(textBlock));
const bytes = { type: 'string', pattern: '^[A-Za-z0-9+/]+=?=?$', description: 'a PNG, JPEG or WebP picture in base64' };
const imageBlock = open(['type', 'source'], { type: only('image'),
  source: open(['type', 'media_type', 'data'], { type: only('base64'), media_type: { type: 'string', pattern: '^image/[a-z.+-]{1,20}$' }, data: bytes }) });
const userBlock = either(textBlock, imageBlock, open(['type', 'tool_use_id'], { type: only('tool_result'), tool_use_id: text, content: orNull(texts) }));
const assistantBlock = either(textBlock, open(['type', 'thinking'], { type: only('thinking'), thinking: text }),
  open(['type', 'id', 'name', 'input'], { type: only('tool_use'), id: text, name: text, input: anyObject }));
const anthropicMessage = either(
  open(['role', 'content'], { role: only('user'), content: either(text, list(userBlock, { minItems: 1 })) }),
  open(['role', 'content'], { role: only('assistant'), content: either(text, list(assistantBlock, { minItems: 1 })) }),
);
const anthropicFields = {
  system: texts, stream: flag, temperature: between(0, 2), top_p: between(0, 1), top_k: integer(0, 4 * 1024 * 1024),
  tools: list(open(['name'], { type: orNull(only('custom')), name: toolName, description: orNull(text), input_schema: orNull(anyObject), strict: orNull(flag) }), { maxItems: 128 }),
  tool_choice: either(open(['type'], { type: only('auto', 'any', 'none') }), open(['type', 'name'], { type: only('tool'), name: text })),
  metadata: anyObject, thinking: open(['type'], { type: only('enabled', 'adaptive', 'disabled') }), service_tier: text,
  stop_sequences: list({ type: 'string', minLength: 1, maxLength: 512 }, { maxItems: 16 }), cache_control: anyObject,
};
const maxTokens = integer(1, INT32_MAX);
const anthropicUsage = answer({ input_tokens: count, cache_creation_input_tokens: count, cache_read_input_tokens: count, output_tokens: count });
const stop = { stop_reason: orNull(only('max_tokens', 'tool_use', 'stop_sequence', 'end_turn')), stop_sequence: orNull(text) };
const block = either(answer({ type: only('text'), text }), answer({ type: only('thinking'), thinking: text, signature: text }),
  answer({ type: only('tool_use'), id: text, name: text, input: anyObject }));

const anthropic = {
  AnthropicError: answer({ type: only('error'), error: answer({ type: text, message: text }) }),
  AnthropicMessage: anthropicMessage,
  MessagesRequest: request({ model: text, messages: list(ref('AnthropicMessage'), { minItems: 1 }), max_tokens: maxTokens }, anthropicFields),
  CountTokensRequest: request({ model: text, messages: list(ref('AnthropicMessage'), { minItems: 1 }) }, { ...anthropicFields, max_tokens: maxTokens }),
  Messages: answer({ id: text, type: only('message'), role: only('assistant'), model: text, content: list(block), ...stop, usage: anthropicUsage }),
  MessagesEvent: either(
    answer({ type: only('message_start'), message: ref('Messages') }),
    answer({ type: only('content_block_start'), index: count, content_block: block }),
    answer({ type: only('content_block_delta'), index: count, delta: either(answer({ type: only('text_delta'), text }),
      answer({ type: only('thinking_delta'), thinking: text }), answer({ type: only('input_json_delta'), partial_json: text })) }),
    answer({ type: only('content_block_stop'), index: count }),
    answer({ type: only('message_delta'), delta: answer(stop), usage: anthropicUsage }),
    answer({ type: only('message_stop') }),
    ref('AnthropicError'),
  ),
};

// ---- Ollama ----

const stopTexts = { type: 'string', minLength: 1, maxLength: 512 };
const options = request({}, {
  temperature: between(0, 2), top_p: between(0, 1), top_k: integer(0, 4 * 1024 * 1024), min_p: between(0, 1), typical_p: between(0, 1),
  repeat_penalty: between(0.01, 10), presence_penalty: between(-2, 2), frequency_penalty: between(-2, 2), seed: { type: 'integer' },
  stop: either(stopTexts, list(stopTexts, { maxItems: 16 })), num_predict: { type: 'integer', maximum: INT32_MAX },
  ...Object.fromEntries(['num_ctx', 'num_keep', 'num_batch', 'num_gpu', 'main_gpu', 'num_thread', 'use_mmap', 'use_mlock', 'low_vram', 'numa'].map((name) => [name, anything])),
});
const ollamaFields = {
  stream: flag, format: either(only('', 'json'), anyObject), think: either(flag, only('none', 'minimal', 'low', 'medium', 'high', 'xhigh')),
  options: ref('OllamaOptions'), keep_alive: anything,
};
const ollamaCall = open(['function'], { function: open(['name'], { name: text, arguments: anyObject }) });
const noImages = { type: 'array', maxItems: 0 };
const images = list(bytes, { maxItems: 64 });
const extras = { images: noImages, tool_name: text, tool_call_id: text };
const ollamaMessage = either(
  request({ role: only('system', 'tool', 'developer'), content: text }, { ...extras, tool_calls: { type: 'array', maxItems: 0 } }),
  request({ role: only('user'), content: text }, { ...extras, images, tool_calls: { type: 'array', maxItems: 0 } }),
  request({ role: only('assistant'), content: text }, { ...extras, thinking: text, tool_calls: list(ollamaCall, { maxItems: 128 }) }),
  request({ role: only('assistant'), tool_calls: list(ollamaCall, { minItems: 1, maxItems: 128 }) }, { ...extras, thinking: text, content: { type: 'null' } }),
);
const head = { model: text, created_at: text };
const done = { done_reason: only('stop', 'length'), total_duration: count, load_duration: count, prompt_eval_count: count, prompt_eval_duration: count,
  eval_count: count, eval_duration: count };
const ollamaReply = answer({ role: only('assistant'), content: text },
  { thinking: text, tool_calls: list(answer({ function: answer({ name: text, arguments: anyObject }) })) });
const details = answer({ parent_model: text, format: text, family: text, families: list(text), parameter_size: text, quantization_level: text });
const listed = { name: text, model: text, modified_at: text, size: count, digest: text, details };

const ollama = {
  OllamaError: answer({ error: text }),
  OllamaOptions: options,
  OllamaChatRequest: request({ model: text, messages: list(ollamaMessage, { minItems: 1 }) }, { tools: list(ref('Tool'), { maxItems: 128 }), ...ollamaFields }),
  OllamaChat: answer({ ...head, message: ollamaReply, done: flag }, done),
  OllamaGenerateRequest: request({ model: text, prompt: text }, { name: text, system: text, suffix: text, raw: flag, images, ...ollamaFields }),
  OllamaGenerate: answer({ ...head, response: text, done: flag }, { thinking: text, ...done }),
  OllamaTags: answer({ models: list(answer(listed)) }),
  OllamaRunning: answer({ models: list(answer({ ...listed, expires_at: text, size_vram: count })) }),
  OllamaPullRequest: either(request({ model: text }, { name: text, stream: flag, insecure: only(false) }), request({ name: text }, { stream: flag, insecure: only(false) })),
  OllamaPull: answer({ status: text }, { digest: text, total: count, completed: count }),
  OllamaShowRequest: either(open(['model'], { model: text }), open(['name'], { name: text, model: { type: 'null' } })),
  OllamaEmbedRequest: request({ model: text, input: either(text, list(text, { minItems: 1, maxItems: 256 })) },
    { name: text, truncate: flag, options: anyObject, keep_alive: anything, dimensions: integer(1, 2 ** 32 - 1) }),
  OllamaEmbed: answer({ model: text, embeddings: list(list(number)), total_duration: count, load_duration: count, prompt_eval_count: count }),
  OllamaEmbeddingsRequest: request({ model: text, prompt: text }, { name: text, options: anyObject, keep_alive: anything }),
  OllamaShow: answer({ modelfile: text, parameters: text, system: text, template: text, details, model_info: anyObject, capabilities: list(text) }),
};

// ---- llama-server ----

const tokens = list(integer(0, 4 * 1024 * 1024 - 1));
const llamaFields = {
  model: text, n_predict: integer(-1, INT32_MAX), temperature: between(0, 2), top_k: integer(0, 4 * 1024 * 1024), top_p: between(0, 1), min_p: between(0, 1),
  typical_p: between(0, 1), repeat_penalty: between(0.01, 10), presence_penalty: between(-2, 2), frequency_penalty: between(-2, 2),
  seed: { type: 'integer' }, stop: either(stopTexts, list(stopTexts, { maxItems: 16 })), stream: flag,
  cache_prompt: anything, id_slot: anything, timings_per_token: anything,
};
const llama = {
  LlamaCompletionRequest: request({ prompt: either(text, tokens) }, llamaFields),
  InfillRequest: request({}, { input_prefix: text, input_suffix: text, prompt: text, input_extra: { type: 'array', maxItems: 0 }, ...llamaFields }),
  LlamaCompletion: answer({ index: count, stop: flag, content: text }, {
    stop_type: only('word', 'limit', 'eos'), stopping_word: text, model: text, tokens_predicted: count, tokens_evaluated: count, tokens_cached: count, truncated: flag,
    timings: answer({ draft_n: count, draft_n_accepted: count }),
  }),
  LlamaCompletionEvent: either(ref('LlamaCompletion'), ref('Error')),
  TemplateRequest: request({ messages: list(ref('Message'), { minItems: 1 }) }, { model: text, tools: list(ref('Tool'), { maxItems: 128 }),
    chat_template_kwargs: { type: 'object', propertyNames: { not: only('messages', 'tools', 'add_generation_prompt') } } }),
  Template: answer({ prompt: text }),
  Props: answer({ default_generation_settings: answer({ n_ctx: count }), total_slots: count, model_alias: orNull(text), build_info: text }),
  Slots: list(answer({ id: count, n_ctx: count, is_processing: flag })),
};

export const schemas = { ...responses, ...anthropic, ...ollama, ...llama };

const generate = { method: 'post', scope: ['generate'] };
const look = { method: 'get', scope: ['read', 'generate'] };
const streamed = (whole, events) => ({ 'application/json': ref(whole), 'text/event-stream': ref(events) });
const lines = (name) => ({ 'application/json': ref(name), 'application/x-ndjson': either(ref(name), ref('OllamaError')) });
export const routes = [
  { ...generate, path: '/v1/responses', summary: 'The next items of a conversation', body: ref('ResponseRequest'), answer: streamed('Response', 'ResponseEvent') },
  { ...generate, path: '/v1/messages', summary: "Anthropic's next message", body: ref('MessagesRequest'), answer: streamed('Messages', 'MessagesEvent'), error: 'AnthropicError' },
  { ...generate, path: '/v1/messages/count_tokens', summary: 'How many tokens a request has', body: ref('CountTokensRequest'),
    answer: json(answer({ input_tokens: count })), error: 'AnthropicError' },
  { ...generate, path: '/api/chat', summary: "Ollama's next message of a chat", body: ref('OllamaChatRequest'), answer: lines('OllamaChat'), error: 'OllamaError' },
  { ...generate, path: '/api/generate', summary: 'How a prompt goes on', body: ref('OllamaGenerateRequest'), answer: lines('OllamaGenerate'), error: 'OllamaError' },
  { ...look, path: '/api/tags', summary: 'The models that can be asked for', answer: json(ref('OllamaTags')), error: 'OllamaError' },
  { ...look, path: '/api/ps', summary: 'The models that are loaded', answer: json(ref('OllamaRunning')), error: 'OllamaError' },
  { ...look, path: '/api/version', summary: "Medley's version", answer: json(answer({ version: text })), error: 'OllamaError' },
  { ...look, method: 'post', path: '/api/show', summary: 'What a model can', body: ref('OllamaShowRequest'), answer: json(ref('OllamaShow')), error: 'OllamaError' },
  { ...generate, path: '/api/embed', summary: 'A vector of each text', body: ref('OllamaEmbedRequest'), answer: json(ref('OllamaEmbed')), error: 'OllamaError' },
  { ...generate, path: '/api/embeddings', summary: 'A vector of a text', body: ref('OllamaEmbeddingsRequest'), answer: json(answer({ embedding: list(number) })), error: 'OllamaError' },
  { method: 'post', scope: ['models'], path: '/api/pull', summary: "Brings a model of Ollama's registry, or of a hub, here", node: true, body: ref('OllamaPullRequest'),
    answer: lines('OllamaPull'), error: 'OllamaError' },
  { ...generate, path: '/completion', summary: 'How a prompt goes on', body: ref('LlamaCompletionRequest'), answer: streamed('LlamaCompletion', 'LlamaCompletionEvent') },
  { ...generate, path: '/infill', summary: 'What stands between two texts', body: ref('InfillRequest'), answer: streamed('LlamaCompletion', 'LlamaCompletionEvent') },
  { ...generate, path: '/apply-template', summary: "A chat as the model's template renders it", body: ref('TemplateRequest'), answer: json(ref('Template')) },
  { ...look, path: '/props', summary: 'What the server is set to', answer: json(ref('Props')) },
  { ...look, path: '/slots', summary: 'What the server does', answer: json(ref('Slots')) },
];
