/* How the next token is chosen: the settings that the page offers, each a row of one table. The
 * ranges are the API's (src/engine/sampler_params.h), the defaults those of `medley run`. Pure. */

export interface Sampling {
  temperature: number;
  top_p: number;
  top_k: number;
  min_p: number;
  seed: number | null; // null: another one each time
  max_tokens: number | null; // null: until the model stops or the context is full
  stop: string[];
}

export type NumberField = 'temperature' | 'top_p' | 'top_k' | 'min_p' | 'seed' | 'max_tokens';

export interface SamplingRow {
  field: NumberField;
  label: string;
  help: string;
  lowest: number;
  highest: number;
  step: number;
  isWhole: boolean;
  usual: number | null; // null: may be empty
  empty: string; // what an empty field means; '' where it may not be
}

export const SAMPLING_ROWS: readonly SamplingRow[] = [
  {
    field: 'temperature',
    label: 'Temperature',
    help: 'Low is sober and repeats itself, high is lively and errs. 0 always takes the likeliest word.',
    lowest: 0,
    highest: 2,
    step: 0.05,
    isWhole: false,
    usual: 0.8,
    empty: '',
  },
  {
    field: 'top_p',
    label: 'Top P',
    help: 'Only the likeliest words that together have this share of the probability. 1 is off.',
    lowest: 0,
    highest: 1,
    step: 0.01,
    isWhole: false,
    usual: 0.95,
    empty: '',
  },
  {
    field: 'top_k',
    label: 'Top K',
    help: 'Only this many of the likeliest words. 0 is off.',
    lowest: 0,
    highest: 1000,
    step: 1,
    isWhole: true,
    usual: 40,
    empty: '',
  },
  {
    field: 'min_p',
    label: 'Min P',
    help: 'Leaves out words that are less likely than this share of the likeliest one. 0 is off.',
    lowest: 0,
    highest: 1,
    step: 0.01,
    isWhole: false,
    usual: 0.05,
    empty: '',
  },
  {
    field: 'max_tokens',
    label: 'Longest answer',
    help: 'In tokens; a token is about three quarters of an English word.',
    lowest: 1,
    highest: 1_000_000,
    step: 1,
    isWhole: true,
    usual: null,
    empty: 'until it is finished',
  },
  {
    field: 'seed',
    label: 'Seed',
    help: 'The same number and the same question give the same answer.',
    lowest: 0,
    highest: Number.MAX_SAFE_INTEGER,
    step: 1,
    isWhole: true,
    usual: null,
    empty: 'another one each time',
  },
];

export const STOPS_MAX = 16;
export const STOP_BYTES_MAX = 512;

export function samplingDefaults(): Sampling {
  const sampling: Record<string, unknown> = { stop: [] };
  for (const row of SAMPLING_ROWS) sampling[row.field] = row.usual;
  return sampling as unknown as Sampling;
}

/* null: it is good. Else what is wrong, for the reader. */
export function samplingProblem(row: SamplingRow, value: number | null): string | null {
  if (value === null) return row.empty ? null : `${row.label} must not be empty.`;
  if (!Number.isFinite(value) || value < row.lowest || value > row.highest)
    return `${row.label} must be from ${row.lowest} to ${row.highest}.`;
  if (row.isWhole && !Number.isInteger(value)) return `${row.label} must be a whole number.`;
  return null;
}

export function stopProblem(stops: string[]): string | null {
  if (stops.length > STOPS_MAX) return `At most ${STOPS_MAX} stop texts.`;
  const encoder = new TextEncoder();
  if (stops.some((stop) => encoder.encode(stop).length > STOP_BYTES_MAX))
    return `A stop text has at most ${STOP_BYTES_MAX} bytes.`;
  return null;
}

/* From anywhere: what is not good becomes the default. */
export function samplingRead(value: unknown): Sampling {
  const sampling = samplingDefaults();
  if (typeof value !== 'object' || value === null) return sampling;
  const given = value as Record<string, unknown>;
  for (const row of SAMPLING_ROWS) {
    const number = given[row.field];
    if ((typeof number === 'number' || number === null) && !samplingProblem(row, number))
      (sampling as unknown as Record<string, number | null>)[row.field] = number;
  }
  if (Array.isArray(given.stop)) {
    const stops = given.stop.filter((stop): stop is string => typeof stop === 'string' && !!stop);
    if (!stopProblem(stops)) sampling.stop = stops;
  }
  return sampling;
}

/* The request's fields. */
export function samplingFields(sampling: Sampling): Record<string, number | string[]> {
  const fields: Record<string, number | string[]> = {};
  for (const row of SAMPLING_ROWS) {
    const value = sampling[row.field];
    if (value !== null) fields[row.field] = value;
  }
  if (sampling.stop.length) fields.stop = sampling.stop;
  return fields;
}
