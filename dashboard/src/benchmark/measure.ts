/* Runs one case of a benchmark: `streams` requests at once, each with a prompt that no cache knows.
 * The shell around runs.ts. */
import { answerNew } from '../chat/answer.ts';
import { browserShell, requestIdNew } from '../chat/stream.ts';
import { SseParser } from '../chat/sse.ts';
import { faultFromJson } from '../chat/answer.ts';
import { postJson } from '../lib/api.ts';
import type { Instance, View } from '../lib/types.ts';
import { type BenchmarkCase, type RunMeasure, type StreamMeasure, promptOf, runMeasure } from './runs.ts';

const TEXT =
  'The quick brown fox jumps over the lazy dog near the old river bank, where seven machines of very ' +
  'different makers work together on one long sentence, and nobody who reads it can tell which of ' +
  'them wrote which word. In the morning the miller counts his sacks, the baker lights the oven, and ' +
  'a child asks why the moon is still there. By noon the market is loud; by evening only the clock ' +
  'speaks. ';
const WATTS_EVERY_MS = 250;

export async function tokensOfText(model: string, signal: AbortSignal): Promise<number[]> {
  const { tokens } = await postJson<{ tokens: number[] }>(
    '/tokenize',
    { model, content: TEXT, add_special: false },
    signal,
  );
  return tokens;
}

/* Watts of all devices of the instance together; null: not every one of them tells. */
export function wattsOf(view: View, instance: Instance | null): number | null {
  if (!instance?.stages.length) return null;
  const devices = new Map(
    instance.stages.map((stage) => [
      `${stage.node}/${stage.device}`,
      view.nodes[stage.node]?.devices?.[stage.device]?.power_w,
    ]),
  );
  let sum = 0;
  for (const watts of devices.values()) {
    if (watts === null || watts === undefined) return null;
    sum += watts;
  }
  return sum;
}

/* Of /v1/completions: its chunks have "text". */
function takeText(answer: ReturnType<typeof answerNew>, data: string, nowMs: number): void {
  if (data === '[DONE]') {
    answer.isDone = true;
    return;
  }
  const chunk = JSON.parse(data) as {
    error?: unknown;
    choices?: { text?: string }[];
    usage?: { prompt_tokens: number; completion_tokens: number };
  };
  if (chunk.error) throw new Error(faultFromJson(0, chunk).text);
  if (chunk.choices?.[0]?.text) {
    answer.firstTextMs ??= nowMs;
    answer.lastTextMs = nowMs;
    answer.nEvents++;
  }
  if (chunk.usage) answer.usage = { ...chunk.usage, cached_tokens: null };
}

async function measureStream(
  model: string,
  prompt: number[],
  answerTokens: number,
  signal: AbortSignal,
): Promise<StreamMeasure> {
  const answer = answerNew();
  const askedMs = browserShell.now();
  const response = await fetch('/v1/completions', {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-request-id': requestIdNew() },
    body: JSON.stringify({
      model,
      prompt,
      max_tokens: answerTokens,
      temperature: 1,
      stream: true,
      stream_options: { include_usage: true },
    }),
    signal,
    cache: 'no-store',
  });
  if (!response.ok || !response.body) {
    const said = await response.json().catch(() => null);
    throw new Error(faultFromJson(response.status, said).text);
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new SseParser();
  while (!answer.isDone) {
    const { value, done } = await reader.read();
    if (done) throw new Error('The stream broke off in the middle of a run.');
    for (const item of parser.push(value))
      if (item.kind === 'event') takeText(answer, item.data, browserShell.now());
  }
  if (answer.firstTextMs === null || answer.lastTextMs === null)
    throw new Error('The model answered nothing. Choose another model, or a longer answer.');
  return {
    promptTokens: answer.usage?.prompt_tokens ?? prompt.length,
    answerTokens: answer.usage?.completion_tokens ?? answer.nEvents,
    askedMs,
    firstTextMs: answer.firstTextMs,
    lastTextMs: answer.lastTextMs,
  };
}

/* `watts` is asked again and again while it runs. `salt` is another for each run of this page. */
export async function measureCase(
  model: string,
  tokens: number[],
  asked: BenchmarkCase,
  salt: number,
  watts: () => number | null,
  signal: AbortSignal,
): Promise<RunMeasure> {
  const samples: number[] = [];
  let isWhole = true;
  const sample = () => {
    const now = watts();
    if (now === null) isWhole = false;
    else samples.push(now);
  };
  const timer = setInterval(sample, WATTS_EVERY_MS);
  try {
    const streams = await Promise.all(
      Array.from({ length: asked.streams }, (_, index) =>
        measureStream(
          model,
          promptOf(tokens, asked.promptTokens, salt * 64 + index),
          asked.answerTokens,
          signal,
        ),
      ),
    );
    sample();
    return runMeasure(streams, isWhole ? samples : []);
  } finally {
    clearInterval(timer);
  }
}
