/* Which machines computed an answer and how fast, beside what was forecast: what is shown under it.
 * Pure. The node knows best (GET /api/requests/ID); where it does not tell, the page says what it
 * saw itself. Unknown is null. */
import type { Instance, RequestRecord, View } from '../lib/types.ts';
import { type Answer, answerTokensPerSecond } from './answer.ts';

export interface MadeStage {
  where: string; // "laptop cpu"
  firstLayer: number;
  nLayers: number;
  computeMs: number | null;
  waitMs: number | null;
  linkMs: number | null;
}

export interface MadePause {
  atMs: number; // after the beginning
  ms: number;
  why: string;
}

export interface AnswerMade {
  isByNode: boolean; // false: what this page saw
  stages: MadeStage[];
  pauses: MadePause[];
  decodeTokensPerS: number | null;
  prefillTokensPerS: number | null;
  forecastDecode: number | null;
  queueMs: number | null;
  ttftMs: number | null;
  totalMs: number | null;
  joules: number | null;
}

const STAGES_MAX = 256;
const PAUSES_MAX = 64;

type Json = Record<string, unknown>;
const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const numberOf = (value: unknown): number | null =>
  typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : null;
const textOf = (value: unknown): string =>
  typeof value === 'string' ? value.slice(0, 300) : '';
const listOf = (value: unknown, most: number): Json[] =>
  Array.isArray(value) ? value.slice(0, most).filter(isObject) : [];

export function whereOf(view: View, node: string, device: string): string {
  return `${view.nodes[node]?.name ?? node.slice(0, 8)} ${device}`;
}

export function madeFromRecord(record: RequestRecord, view: View): AnswerMade {
  const begun = numberOf(record.started_ms) ?? 0;
  return {
    isByNode: true,
    stages: listOf(record.stages, STAGES_MAX).map((stage) => ({
      where: whereOf(view, textOf(stage.node), textOf(stage.device)),
      firstLayer: numberOf(stage.first_layer) ?? 0,
      nLayers: numberOf(stage.n_layers) ?? 0,
      computeMs: numberOf(stage.compute_ms),
      waitMs: numberOf(stage.wait_ms),
      linkMs: numberOf(stage.link_ms),
    })),
    pauses: listOf(record.pauses, PAUSES_MAX).map((pause) => {
      const at = numberOf(pause.at_ms) ?? 0;
      return {
        atMs: at > begun && begun > 0 ? at - begun : at, // since 1970, or since the beginning
        ms: numberOf(pause.ms) ?? 0,
        why: textOf(pause.why),
      };
    }),
    decodeTokensPerS: numberOf(record.decode_tokens_per_s),
    prefillTokensPerS: numberOf(record.prefill_tokens_per_s),
    forecastDecode: numberOf(record.forecast_decode_tokens_per_s),
    queueMs: numberOf(record.queue_ms),
    ttftMs: numberOf(record.ttft_ms),
    totalMs: numberOf(record.total_ms),
    joules: numberOf(record.joules),
  };
}

export function madeFromPage(
  answer: Answer,
  askedMs: number,
  instance: Instance | null,
  view: View,
): AnswerMade {
  return {
    isByNode: false,
    stages: (instance?.stages ?? []).slice(0, STAGES_MAX).map((stage) => ({
      where: whereOf(view, stage.node, stage.device),
      firstLayer: stage.first_layer,
      nLayers: stage.n_layers,
      computeMs: null,
      waitMs: null,
      linkMs: null,
    })),
    pauses: [],
    decodeTokensPerS: answerTokensPerSecond(answer),
    prefillTokensPerS: null,
    forecastDecode: instance?.forecast_decode_tokens_per_s ?? null,
    queueMs: null,
    ttftMs: answer.firstTextMs === null ? null : answer.firstTextMs - askedMs,
    totalMs: answer.lastTextMs === null ? null : answer.lastTextMs - askedMs,
    joules: null,
  };
}

/* From a file: foreign. */
export function madeRead(value: unknown): AnswerMade | null {
  if (!isObject(value)) return null;
  return {
    isByNode: value.isByNode === true,
    stages: listOf(value.stages, STAGES_MAX).map((stage) => ({
      where: textOf(stage.where),
      firstLayer: numberOf(stage.firstLayer) ?? 0,
      nLayers: numberOf(stage.nLayers) ?? 0,
      computeMs: numberOf(stage.computeMs),
      waitMs: numberOf(stage.waitMs),
      linkMs: numberOf(stage.linkMs),
    })),
    pauses: listOf(value.pauses, PAUSES_MAX).map((pause) => ({
      atMs: numberOf(pause.atMs) ?? 0,
      ms: numberOf(pause.ms) ?? 0,
      why: textOf(pause.why),
    })),
    decodeTokensPerS: numberOf(value.decodeTokensPerS),
    prefillTokensPerS: numberOf(value.prefillTokensPerS),
    forecastDecode: numberOf(value.forecastDecode),
    queueMs: numberOf(value.queueMs),
    ttftMs: numberOf(value.ttftMs),
    totalMs: numberOf(value.totalMs),
    joules: numberOf(value.joules),
  };
}

/* A piece of a stage's bar, in shares of the longest stage. */
export interface BarPiece {
  kind: 'compute' | 'link' | 'wait';
  from: number; // 0 to 1
  share: number;
}

/* [] for a stage without times. */
export function stageBar(stage: MadeStage, longestMs: number): BarPiece[] {
  const pieces: BarPiece[] = [];
  let from = 0;
  for (const [kind, ms] of [
    ['compute', stage.computeMs],
    ['link', stage.linkMs],
    ['wait', stage.waitMs],
  ] as const) {
    if (!ms || longestMs <= 0) continue;
    const share = Math.min(ms / longestMs, 1 - from);
    pieces.push({ kind, from, share });
    from += share;
  }
  return pieces;
}

export function longestStageMs(made: AnswerMade): number {
  return Math.max(
    0,
    ...made.stages.map(
      (stage) => (stage.computeMs ?? 0) + (stage.linkMs ?? 0) + (stage.waitMs ?? 0),
    ),
  );
}
