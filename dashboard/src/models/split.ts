/* A split of a model's layers over devices, as somebody drags it. Pure. */
import type { Plan, PlanAsk, PlanStage, Stage } from '../lib/types.ts';

export interface Piece {
  node: string; /* its name */
  device: string;
  n_layers: number;
}

export function piecesOfPlan(stages: PlanStage[]): Piece[] {
  return stages.map(({ node, device, layers }) => ({ node, device, n_layers: layers }));
}

export function piecesOfStages(stages: Stage[], nameOf: (id: string) => string): Piece[] {
  return stages.map(({ node, device, n_layers }) => ({ node: nameOf(node), device, n_layers }));
}

export function totalOf(pieces: Piece[]): number {
  return pieces.reduce((sum, piece) => sum + piece.n_layers, 0);
}

/** The first layer of piece `index`. */
export function startOf(pieces: Piece[], index: number): number {
  return totalOf(pieces.slice(0, index));
}

/** Where boundary `index` (between piece index and index + 1) may be: each keeps a layer. */
export function rangeOf(pieces: Piece[], index: number): { least: number; most: number } {
  const start = startOf(pieces, index);
  return { least: start + 1, most: startOf(pieces, index + 2) - 1 };
}

/** Boundary `index` at layer `at`, or as near as it may be. */
export function withBoundary(pieces: Piece[], index: number, at: number): Piece[] {
  const { least, most } = rangeOf(pieces, index);
  const wanted = Math.min(Math.max(Math.round(at), least), most);
  const start = startOf(pieces, index);
  const end = startOf(pieces, index + 2);
  return pieces.map((piece, i) => {
    if (i === index) return { ...piece, n_layers: wanted - start };
    if (i === index + 1) return { ...piece, n_layers: end - wanted };
    return piece;
  });
}

export function sameSplit(a: Piece[], b: Piece[]): boolean {
  return (
    a.length === b.length &&
    a.every((piece, i) => {
      const other = b[i];
      return (
        piece.node === other?.node &&
        piece.device === other.device &&
        piece.n_layers === other.n_layers
      );
    })
  );
}

/* ---- what is asked --------------------------------------------------------------------------- */

const CONTEXTS = [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576];
export const STREAMS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32];

/** The contexts that a slider offers: doubling, up to what the model was trained for. */
export function contextsOf(most: number | null | undefined, asked: number | null): number[] {
  const top = most && most > 0 ? most : 131072;
  const out = new Set(CONTEXTS.filter((one) => one <= top));
  out.add(top);
  if (asked) out.add(asked);
  return [...out].sort((a, b) => a - b);
}

export function nearest(list: number[], value: number): number {
  let best = 0;
  list.forEach((one, i) => {
    if (Math.abs(one - value) < Math.abs((list[best] ?? 0) - value)) best = i;
  });
  return best;
}

/** Whether it asks about the cluster as it is, so that it can be placed. */
export function isReal(ask: PlanAsk): boolean {
  return !ask.without?.length && !ask.with?.length;
}

/** What one what-if makes of the tokens a second, in words: "9.1 tokens/s (−40 %)". */
export function changeWords(before: number, after: number): string {
  const percent = Math.round((after / before - 1) * 100);
  if (percent === 0) return 'as fast';
  return percent > 0 ? `${percent} % faster` : `${-percent} % slower`;
}

/** Devices that the plan leaves out, with the reason; what somebody switched off is not news. */
export function leftOut(plan: Plan): { name: string; why: string }[] {
  return plan.devices
    .filter((device) => device.state !== 'used' && device.state !== 'excluded' && device.why)
    .map((device) => ({ name: `${device.node}/${device.device}`, why: device.why ?? '' }));
}
