/* Results of former benchmarks, in this browser. What is read is checked: it may be of another
 * version. Bounded: the oldest go. */
import type { BenchmarkResult, RunMeasure } from './runs.ts';

const KEY = 'medley-benchmarks';
export const RESULTS_MAX = 200;
const RUNS_MAX = 20;

const numberOf = (value: unknown): number | null =>
  typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : null;

function runRead(value: unknown): RunMeasure | null {
  if (typeof value !== 'object' || value === null) return null;
  const given = value as Record<string, unknown>;
  return {
    prefillTokensPerS: numberOf(given.prefillTokensPerS),
    decodeTokensPerS: numberOf(given.decodeTokensPerS),
    totalTokensPerS: numberOf(given.totalTokensPerS),
    firstTokenMs: numberOf(given.firstTokenMs),
    watts: numberOf(given.watts),
    joulesPerToken: numberOf(given.joulesPerToken),
    answerTokens: numberOf(given.answerTokens) ?? 0,
  };
}

export function resultRead(value: unknown): BenchmarkResult | null {
  if (typeof value !== 'object' || value === null) return null;
  const given = value as Record<string, unknown>;
  const sizes = [given.promptTokens, given.answerTokens, given.streams].map(numberOf);
  if (sizes.some((size) => size === null) || !Array.isArray(given.runs)) return null;
  return {
    promptTokens: sizes[0]!,
    answerTokens: sizes[1]!,
    streams: sizes[2]!,
    model: typeof given.model === 'string' ? given.model : '',
    atMs: numberOf(given.atMs) ?? 0,
    devices: typeof given.devices === 'string' ? given.devices : '',
    forecastDecode: numberOf(given.forecastDecode),
    forecastPrefill: numberOf(given.forecastPrefill),
    runs: given.runs.slice(0, RUNS_MAX).map(runRead).filter((run) => run !== null),
  };
}

export function resultsRead(text: string | null): BenchmarkResult[] {
  try {
    const all: unknown = JSON.parse(text ?? '[]');
    if (!Array.isArray(all)) return [];
    return all.slice(0, RESULTS_MAX).map(resultRead).filter((result) => result !== null);
  } catch {
    return [];
  }
}

export function resultsLoad(): BenchmarkResult[] {
  try {
    return resultsRead(localStorage.getItem(KEY));
  } catch {
    return [];
  }
}

/* Newest first. False: the browser keeps nothing. */
export function resultsSave(results: BenchmarkResult[]): boolean {
  try {
    localStorage.setItem(KEY, JSON.stringify(results.slice(0, RESULTS_MAX)));
    return true;
  } catch {
    return false;
  }
}
