/* Ready-made configuration for programs that speak OpenAI's API, and what Medley cannot do for
 * others yet. Pure. What goes into a snippet is quoted for where it goes: a model's name is
 * anybody's text. */

export interface ConnectFacts {
  base: string; // "https://tower.local:8080/v1"
  model: string;
  key: string; // a token, or KEY_PLACE
  context: number | null;
  needsCa: boolean; // TLS by the cluster's own authority
}

export interface Snippet {
  where: string; // a file, or what it is
  language: string;
  text: string;
}

export interface Client {
  id: string;
  name: string;
  what: string;
  isTried: boolean; // the project's tests run it against a node
  snippets: (facts: ConnectFacts) => Snippet[];
  ca: (facts: ConnectFacts) => string; // how this program comes to trust the authority
  note?: string;
}

export const KEY_PLACE = 'YOUR-TOKEN';
export const NO_KEY = 'none';
export const CA_FILE = 'medley-ca.pem';

/* In a shell, between single quotes. */
export function shellQuote(text: string): string {
  return /^[A-Za-z0-9_./:@%+=-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`;
}

/* JSON's strings are strings of Python, JavaScript and YAML, too, except for what JSON leaves as it
 * is and they do not (U+2028, U+007F, lone surrogates). */
export function textQuote(text: string): string {
  return JSON.stringify(text).replace(
    /[\u007f-\uffff]/g,
    (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/* A Lisp string. */
function lispQuote(text: string): string {
  return `"${text.replace(/[\\"]/g, '\\$&')}"`;
}

const lines = (...all: (string | false)[]): string => all.filter((line) => line !== false).join('\n');
const fileCa = (name: string) => (): string => `export ${name}=/path/to/${CA_FILE}`;

const CURL: Client = {
  id: 'curl',
  name: 'curl',
  what: 'the command line, to see that it works',
  isTried: true,
  snippets: ({ base, model, key, needsCa }) => [
    {
      where: 'in a terminal',
      language: 'sh',
      text: lines(
        `curl --no-buffer ${shellQuote(`${base}/chat/completions`)} \\`,
        needsCa && `  --cacert ${CA_FILE} \\`,
        key !== NO_KEY && `  -H ${shellQuote(`Authorization: Bearer ${key}`)} \\`,
        "  -H 'Content-Type: application/json' \\",
        `  -d ${shellQuote(
          JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello!' }], stream: true }),
        )}`,
      ),
    },
  ],
  ca: () => `The option --cacert ${CA_FILE} is in the command.`,
};

const OPENAI_PYTHON: Client = {
  id: 'openai-python',
  name: 'OpenAI for Python',
  what: 'the package openai',
  isTried: false,
  snippets: ({ base, model, key }) => [
    { where: 'once', language: 'sh', text: 'pip install openai' },
    {
      where: 'hello.py',
      language: 'python',
      text: lines(
        'from openai import OpenAI',
        '',
        `client = OpenAI(base_url=${textQuote(base)}, api_key=${textQuote(key)})`,
        'stream = client.chat.completions.create(',
        `    model=${textQuote(model)},`,
        '    messages=[{"role": "user", "content": "Hello!"}],',
        '    stream=True,',
        ')',
        'for chunk in stream:',
        '    if chunk.choices:',
        '        print(chunk.choices[0].delta.content or "", end="", flush=True)',
      ),
    },
  ],
  ca: fileCa('SSL_CERT_FILE'),
};

const OPENAI_JS: Client = {
  id: 'openai-js',
  name: 'OpenAI for JavaScript',
  what: 'the package openai, in Node',
  isTried: true,
  snippets: ({ base, model, key }) => [
    { where: 'once', language: 'sh', text: 'npm install openai' },
    {
      where: 'hello.mjs',
      language: 'js',
      text: lines(
        "import OpenAI from 'openai';",
        '',
        `const client = new OpenAI({ baseURL: ${textQuote(base)}, apiKey: ${textQuote(key)} });`,
        'const stream = await client.chat.completions.create({',
        `  model: ${textQuote(model)},`,
        "  messages: [{ role: 'user', content: 'Hello!' }],",
        '  stream: true,',
        '});',
        "for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? '');",
      ),
    },
  ],
  ca: fileCa('NODE_EXTRA_CA_CERTS'),
};

const LANGCHAIN: Client = {
  id: 'langchain',
  name: 'LangChain',
  what: 'for Python; chains without tools',
  isTried: false,
  snippets: ({ base, model, key }) => [
    { where: 'once', language: 'sh', text: 'pip install langchain-openai' },
    {
      where: 'hello.py',
      language: 'python',
      text: lines(
        'from langchain_openai import ChatOpenAI',
        '',
        'llm = ChatOpenAI(',
        `    base_url=${textQuote(base)},`,
        `    api_key=${textQuote(key)},`,
        `    model=${textQuote(model)},`,
        ')',
        'print(llm.invoke("Hello!").content)',
      ),
    },
  ],
  ca: fileCa('SSL_CERT_FILE'),
};

const LLAMAINDEX: Client = {
  id: 'llamaindex',
  name: 'LlamaIndex',
  what: 'for Python; chat and queries without tools',
  isTried: false,
  snippets: ({ base, model, key, context }) => [
    { where: 'once', language: 'sh', text: 'pip install llama-index-llms-openai-like' },
    {
      where: 'hello.py',
      language: 'python',
      text: lines(
        'from llama_index.llms.openai_like import OpenAILike',
        '',
        'llm = OpenAILike(',
        `    api_base=${textQuote(base)},`,
        `    api_key=${textQuote(key)},`,
        `    model=${textQuote(model)},`,
        '    is_chat_model=True,',
        context !== null && `    context_window=${context},`,
        ')',
        'print(llm.complete("Hello!"))',
      ),
    },
  ],
  ca: fileCa('SSL_CERT_FILE'),
};

const OPEN_WEBUI: Client = {
  id: 'open-webui',
  name: 'Open WebUI',
  what: 'a chat page for many people',
  isTried: false,
  note: 'In a container, localhost and 127.0.0.1 are the container itself: use the address of this machine in your network. Leave “Native” function calling off.',
  snippets: ({ base, key, needsCa }) => [
    {
      where: 'in a terminal',
      language: 'sh',
      text: lines(
        'docker run -d -p 3000:8080 \\',
        `  -e OPENAI_API_BASE_URL=${shellQuote(base)} \\`,
        `  -e OPENAI_API_KEY=${shellQuote(key)} \\`,
        '  -e ENABLE_OLLAMA_API=false \\',
        needsCa && `  -v "$PWD/${CA_FILE}:/ca.pem:ro" -e SSL_CERT_FILE=/ca.pem \\`,
        '  -v open-webui:/app/backend/data \\',
        '  --name open-webui ghcr.io/open-webui/open-webui:main',
      ),
    },
  ],
  ca: () => `The command gives the container ${CA_FILE} as SSL_CERT_FILE.`,
};

const LIBRECHAT: Client = {
  id: 'librechat',
  name: 'LibreChat',
  what: 'a chat page for many people',
  isTried: false,
  note: 'Agents with tools do not work yet; plain chats do.',
  snippets: ({ base, model, key }) => [
    {
      where: 'librechat.yaml',
      language: 'yaml',
      text: lines(
        'version: 1.2.1',
        'endpoints:',
        '  custom:',
        '    - name: "Medley"',
        `      apiKey: ${textQuote(key)}`,
        `      baseURL: ${textQuote(base)}`,
        '      models:',
        `        default: [${textQuote(model)}]`,
        '        fetch: true',
        '      titleConvo: true',
        `      titleModel: ${textQuote(model)}`,
      ),
    },
  ],
  ca: fileCa('NODE_EXTRA_CA_CERTS'),
};

const CONTINUE: Client = {
  id: 'continue',
  name: 'Continue',
  what: 'in VS Code and JetBrains: chat and edit',
  isTried: false,
  note: 'Use Chat and Edit. Agent mode needs tool calls, which Medley does not have yet.',
  snippets: ({ base, model, key, context }) => [
    {
      where: '~/.continue/config.yaml',
      language: 'yaml',
      text: lines(
        'name: Medley',
        'version: 1.0.0',
        'schema: v1',
        'models:',
        '  - name: Medley',
        '    provider: openai',
        `    model: ${textQuote(model)}`,
        `    apiBase: ${textQuote(base)}`,
        `    apiKey: ${textQuote(key)}`,
        '    roles: [chat, edit, apply]',
        context !== null && '    defaultCompletionOptions:',
        context !== null && `      contextLength: ${context}`,
      ),
    },
  ],
  ca: ({ base }) =>
    `Under the model in config.yaml (for ${base}):\n    requestOptions:\n      caBundlePath: /path/to/${CA_FILE}`,
};

const AIDER: Client = {
  id: 'aider',
  name: 'aider',
  what: 'a coding agent in the terminal that needs no tool calls',
  isTried: false,
  snippets: ({ base, model, key }) => [
    {
      where: 'in a terminal',
      language: 'sh',
      text: lines(
        `export OPENAI_API_BASE=${shellQuote(base)}`,
        `export OPENAI_API_KEY=${shellQuote(key)}`,
        `aider --model ${shellQuote(`openai/${model}`)}`,
      ),
    },
  ],
  ca: fileCa('SSL_CERT_FILE'),
};

const ZED: Client = {
  id: 'zed',
  name: 'Zed',
  what: 'an editor: inline assistant and text threads',
  isTried: false,
  note: 'Tools are switched off in this configuration, for Medley has no tool calls yet. Put the token into the provider’s settings, or into MEDLEY_API_KEY.',
  snippets: ({ base, model, key, context }) => [
    {
      where: 'settings.json',
      language: 'json',
      text: JSON.stringify(
        {
          language_models: {
            openai_compatible: {
              Medley: {
                api_url: base,
                available_models: [
                  {
                    name: model,
                    display_name: `${model} (Medley)`,
                    max_tokens: context ?? 4096,
                    capabilities: {
                      tools: false,
                      images: false,
                      parallel_tool_calls: false,
                      prompt_cache_key: false,
                    },
                  },
                ],
              },
            },
          },
        },
        null,
        2,
      ),
    },
    { where: 'the token, before Zed is started', language: 'sh', text: `export MEDLEY_API_KEY=${shellQuote(key)}` },
  ],
  ca: () => `Zed asks the system: make that trust ${CA_FILE} (docs/api-tls.md).`,
};

const LLM: Client = {
  id: 'llm',
  name: 'llm',
  what: 'prompts in the terminal and in scripts',
  isTried: false,
  snippets: ({ base, model, key }) => [
    {
      where: 'extra-openai-models.yaml, in the folder of: dirname "$(llm logs path)"',
      language: 'yaml',
      text: lines(
        '- model_id: medley',
        `  model_name: ${textQuote(model)}`,
        `  api_base: ${textQuote(base)}`,
        '  api_key_name: medley',
      ),
    },
    {
      where: 'in a terminal',
      language: 'sh',
      text: lines(`llm keys set medley --value ${shellQuote(key)}`, "llm -m medley 'Hello!'"),
    },
  ],
  ca: fileCa('SSL_CERT_FILE'),
};

const GPTEL: Client = {
  id: 'gptel',
  name: 'gptel',
  what: 'chat in Emacs',
  isTried: false,
  snippets: ({ base, model, key }) => {
    const url = new URL(base);
    return [
      {
        where: 'init.el',
        language: 'lisp',
        text: lines(
          '(setq gptel-backend',
          '      (gptel-make-openai "Medley"',
          `        :host ${lispQuote(url.host)}`,
          `        :protocol ${lispQuote(url.protocol.replace(':', ''))}`,
          `        :endpoint ${lispQuote(`${url.pathname}/chat/completions`)}`,
          '        :stream t',
          `        :key ${lispQuote(key)}`,
          `        :models (list (intern ${lispQuote(model)})))`,
          `      gptel-model (intern ${lispQuote(model)}))`,
        ),
      },
    ];
  },
  ca: () => `gptel uses curl: put cacert=/path/to/${CA_FILE} into ~/.curlrc.`,
};

export const CLIENTS: readonly Client[] = [
  CURL,
  OPENAI_PYTHON,
  OPENAI_JS,
  LANGCHAIN,
  LLAMAINDEX,
  OPEN_WEBUI,
  LIBRECHAT,
  CONTINUE,
  AIDER,
  ZED,
  LLM,
  GPTEL,
];

/* What people ask for, and what is missing. */
export const NOT_YET: readonly { name: string; why: string }[] = [
  { name: 'Cline, Roo Code, OpenCode', why: 'they work by tool calls' },
  { name: 'Codex', why: 'it speaks OpenAI’s Responses API, and works by tool calls' },
  { name: 'Claude Code', why: 'it speaks another API, and works by tool calls' },
  { name: 'Home Assistant', why: 'to switch things it needs tool calls' },
  { name: 'Completion as you type (Continue, Zed)', why: 'it needs fill-in-the-middle' },
];

/* A name for a token that is made for a client. */
export function tokenName(client: string, random: string): string {
  return `${client}-${random.slice(0, 4)}`;
}
