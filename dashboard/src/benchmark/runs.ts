/* A benchmark of a running model: which runs there are, and what follows from what they measured.
 * Pure. Unknown is null, never zero. */

export interface BenchmarkChoice {
  promptTokens: number[];
  answerTokens: number[];
  streams: number[];
  repeats: number;
}

export interface BenchmarkCase {
  promptTokens: number;
  answerTokens: number;
  streams: number;
}

export const CASES_MAX = 27;
export const REPEATS_MAX = 20;
export const TOKENS_MAX = 32_768;
export const STREAMS_MAX = 64;

export interface StreamMeasure {
  promptTokens: number;
  answerTokens: number;
  askedMs: number;
  firstTextMs: number;
  lastTextMs: number;
}

export interface RunMeasure {
  prefillTokensPerS: number | null; // of one stream: prompt over the time to its first token
  decodeTokensPerS: number | null; // of one stream, the mean over streams
  totalTokensPerS: number | null; // of all streams together
  firstTokenMs: number | null; // the mean over streams
  watts: number | null;
  joulesPerToken: number | null; // prompt and answer together make the energy; answer tokens count
  answerTokens: number;
}

/* "128, 512" as numbers; throws Error with what is wrong. */
export function numbersRead(text: string, what: string, highest: number): number[] {
  const words = text.split(/[\s,;]+/).filter(Boolean);
  if (!words.length) throw new Error(`${what}: write at least one number.`);
  const numbers = words.map(Number);
  if (numbers.some((number) => !Number.isInteger(number) || number < 1 || number > highest))
    throw new Error(`${what}: write whole numbers from 1 to ${highest}.`);
  return [...new Set(numbers)].sort((a, b) => a - b);
}

/* null: it can be run. `context` and `streams` are the instance's; null: not known. */
export function choiceProblem(
  choice: BenchmarkChoice,
  context: number | null,
  streams: number | null,
): string | null {
  const n = choice.promptTokens.length * choice.answerTokens.length * choice.streams.length;
  if (n > CASES_MAX) return `That is ${n} combinations; at most ${CASES_MAX} can be run at once.`;
  if (choice.repeats < 1 || choice.repeats > REPEATS_MAX || !Number.isInteger(choice.repeats))
    return `Runs of each: a whole number from 1 to ${REPEATS_MAX}.`;
  const longest = Math.max(...choice.promptTokens) + Math.max(...choice.answerTokens);
  if (context !== null && longest > context)
    return `The model's context is ${context} tokens; prompt and answer together are ${longest}.`;
  const most = Math.max(...choice.streams);
  if (streams !== null && most > streams)
    return `The model was placed for ${streams} streams at a time; ${most} would only wait.`;
  return null;
}

export function casesOf(choice: BenchmarkChoice): BenchmarkCase[] {
  return choice.streams.flatMap((streams) =>
    choice.promptTokens.flatMap((promptTokens) =>
      choice.answerTokens.map((answerTokens) => ({ promptTokens, answerTokens, streams })),
    ),
  );
}

/* All cases once, then all again: so a machine that grows warm does not favour the first case. */
export function scheduleOf(choice: BenchmarkChoice): BenchmarkCase[] {
  const cases = casesOf(choice);
  return Array.from({ length: choice.repeats }, () => cases).flat();
}

const mean = (values: number[]): number | null =>
  values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;

/* watts: samples of all devices of the instance together, taken during the run; empty: no sensor
 * tells, or not of all devices. */
export function runMeasure(streams: StreamMeasure[], watts: number[]): RunMeasure {
  const prefill = streams
    .filter((each) => each.firstTextMs > each.askedMs)
    .map((each) => (each.promptTokens * 1000) / (each.firstTextMs - each.askedMs));
  const decode = streams
    .filter((each) => each.answerTokens > 1 && each.lastTextMs > each.firstTextMs)
    .map((each) => ((each.answerTokens - 1) * 1000) / (each.lastTextMs - each.firstTextMs));
  const answerTokens = streams.reduce((sum, each) => sum + each.answerTokens, 0);
  const begin = Math.min(...streams.map((each) => each.askedMs));
  const firstText = Math.min(...streams.map((each) => each.firstTextMs));
  const end = Math.max(...streams.map((each) => each.lastTextMs));
  const power = mean(watts);
  return {
    prefillTokensPerS: mean(prefill),
    decodeTokensPerS: mean(decode),
    totalTokensPerS:
      end > firstText && answerTokens > streams.length
        ? ((answerTokens - streams.length) * 1000) / (end - firstText)
        : null,
    firstTokenMs: mean(streams.map((each) => each.firstTextMs - each.askedMs)),
    watts: power,
    joulesPerToken:
      power !== null && answerTokens > 0 && end > begin
        ? (power * (end - begin)) / 1000 / answerTokens
        : null,
    answerTokens,
  };
}

export interface Spread {
  median: number;
  lowest: number;
  highest: number;
  n: number;
}

/* null: nothing was measured. */
export function spreadOf(values: (number | null)[]): Spread | null {
  const known = values.filter((value) => value !== null).sort((a, b) => a - b);
  if (!known.length) return null;
  const middle = known.length >> 1;
  const median = known.length % 2 ? known[middle]! : (known[middle - 1]! + known[middle]!) / 2;
  return { median, lowest: known[0]!, highest: known.at(-1)!, n: known.length };
}

/* A prompt of exactly n tokens that no run had before, so that no cache helps: tokens of a text,
 * begun at another place each time. */
export function promptOf(tokens: number[], n: number, salt: number): number[] {
  if (!tokens.length) throw new Error('the model made no tokens of the text');
  const start = (salt * 7919) % tokens.length;
  const step = 1 + (salt % 13);
  return Array.from({ length: n }, (_, i) => tokens[(start + i * step) % tokens.length]!);
}

export interface BenchmarkResult extends BenchmarkCase {
  model: string;
  atMs: number;
  devices: string; // which computed it, in words
  forecastDecode: number | null;
  forecastPrefill: number | null;
  runs: RunMeasure[];
}

const quote = (value: string | number | null): string => {
  const text = value === null ? '' : String(value);
  /* A cell that begins like a formula would be one in a spreadsheet. */
  const safe = /^[=+\-@\t\r]/.test(text) && typeof value === 'string' ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
};

/* One line for each run. */
export function resultsToCsv(results: BenchmarkResult[]): string {
  const head =
    'time,model,devices,prompt_tokens,answer_tokens_asked,streams,answer_tokens,prefill_tokens_per_s,' +
    'decode_tokens_per_s,total_tokens_per_s,first_token_ms,watts,joules_per_token,' +
    'forecast_prefill_tokens_per_s,forecast_decode_tokens_per_s';
  const lines = results.flatMap((result) =>
    result.runs.map((run) =>
      [
        new Date(result.atMs).toISOString(),
        result.model,
        result.devices,
        result.promptTokens,
        result.answerTokens,
        result.streams,
        run.answerTokens,
        run.prefillTokensPerS,
        run.decodeTokensPerS,
        run.totalTokensPerS,
        run.firstTokenMs,
        run.watts,
        run.joulesPerToken,
        result.forecastPrefill,
        result.forecastDecode,
      ]
        .map(quote)
        .join(','),
    ),
  );
  return `${[head, ...lines].join('\r\n')}\r\n`;
}
