/* Where machines are in the drawing. Pure: the same machines at the same width are at the same
 * places, and a machine keeps its place when others come and go (slots). */

export interface Box {
  id: string;
  x: number;
  y: number;
  w: number;
  h: number;
}

export interface Layout {
  boxes: Box[];
  width: number;
  height: number;
  form: 'ring' | 'grid' | 'column' | 'wall';
}

export const RING_MAX = 8; /* machines */
export const ROOMY_MAX = 12; /* above that, cards are small */
const CARD_W = 252;
const HEAD_H = 50;
const DEVICE_H = 50;
const SMALL_W = 150;
const SMALL_HEAD_H = 28;
const SMALL_DEVICE_H = 19;
const RAIL_W = 36; /* for the links beside a column */
const RING_LEAST_W = 760;

/** Ids to slots: known ones keep theirs, new ones take the first that is free, in their order. */
export function assignSlots(known: Record<string, number>, ids: string[]): Record<string, number> {
  const out: Record<string, number> = {};
  const taken = new Set<number>();
  for (const id of ids) {
    const slot = known[id];
    if (slot === undefined || taken.has(slot)) continue;
    out[id] = slot;
    taken.add(slot);
  }
  let free = 0;
  for (const id of ids) {
    if (out[id] !== undefined) continue;
    while (taken.has(free)) free += 1;
    out[id] = free;
    taken.add(free);
  }
  return out;
}

export function cardHeight(devices: number, small: boolean): number {
  const rows = Math.max(devices, 1);
  return small ? SMALL_HEAD_H + rows * SMALL_DEVICE_H + 8 : HEAD_H + rows * DEVICE_H + 10;
}

interface Card {
  id: string;
  devices: number;
}

/** `cards` in the order of their slots. */
export function layoutOf(cards: Card[], width: number): Layout {
  if (cards.length > ROOMY_MAX) return grid(cards, width, SMALL_W, 12, true, 'wall');
  if (width < 600) return column(cards, width);
  if (cards.length <= RING_MAX && width >= RING_LEAST_W) return ring(cards, width);
  return grid(cards, width, CARD_W, 40, false, 'grid');
}

function column(cards: Card[], width: number): Layout {
  const rail = cards.length > 1 ? RAIL_W : 0;
  const boxes: Box[] = [];
  let y = 0;
  for (const { id, devices } of cards) {
    const h = cardHeight(devices, false);
    boxes.push({ id, x: rail, y, w: width - rail, h });
    y += h + 12;
  }
  return { boxes, width, height: Math.max(0, y - 12), form: 'column' };
}

function grid(
  cards: Card[],
  width: number,
  least: number,
  gap: number,
  small: boolean,
  form: 'grid' | 'wall',
): Layout {
  const columns = Math.max(1, Math.floor((width + gap) / (least + gap)));
  const w = Math.floor((width - gap * (columns - 1)) / columns);
  const boxes: Box[] = [];
  let y = 0;
  for (let at = 0; at < cards.length; at += columns) {
    const row = cards.slice(at, at + columns);
    const h = Math.max(...row.map((card) => cardHeight(card.devices, small)));
    row.forEach(({ id, devices }, i) =>
      boxes.push({ id, x: i * (w + gap), y, w, h: cardHeight(devices, small) }),
    );
    y += h + gap;
  }
  return { boxes, width, height: Math.max(0, y - gap), form };
}

/* Up to eight machines stand in two rows, the outer ones of a row of three or more lower (above) or
 * higher (below): a ring, so that no link runs behind a third machine. */
function ring(cards: Card[], width: number): Layout {
  const n = cards.length;
  const above = n <= 2 ? n : Math.ceil(n / 2);
  const rows = [cards.slice(0, above), cards.slice(above)].filter((row) => row.length > 0);
  const heights = rows.map((row) => Math.max(...row.map((card) => cardHeight(card.devices, false))));
  const w = Math.min(CARD_W + 28, Math.floor(width / above) - (above > 1 ? 88 : 0));
  const between = rows.length > 1 ? 96 : 0;
  const bend = above >= 3 ? 44 : 0;
  const boxes: Box[] = [];
  rows.forEach((row, r) => {
    const step = width / row.length;
    const top = r === 0 ? 0 : (heights[0] ?? 0) + between + bend;
    row.forEach(({ id, devices }, i) => {
      const middle = (row.length - 1) / 2;
      const out = row.length >= 3 && middle > 0 ? Math.abs(i - middle) / middle : 0;
      const x = Math.round(step * (i + 0.5) - w / 2);
      const h = cardHeight(devices, false);
      const shift = r === 0 ? out * bend : (1 - out) * bend;
      boxes.push({ id, x, y: Math.round(top + shift), w, h });
    });
  });
  const height = Math.max(...boxes.map((box) => box.y + box.h), 0);
  return { boxes, width, height, form: 'ring' };
}

export interface Line {
  path: string;
  x: number; /* its middle, for words about it */
  y: number;
}

/** The line between two machines; around those that stand between them in a ring. */
export function lineBetween(a: Box, b: Box, layout: Layout): Line {
  if (layout.form === 'column') return arcBeside(a, b);
  if (layout.form === 'ring') {
    const between = boxesBetween(a, b, layout.boxes);
    if (between.length) return arcAround(a, b, between, layout.height);
  }
  const [ax, ay] = [a.x + a.w / 2, a.y + a.h / 2];
  const [bx, by] = [b.x + b.w / 2, b.y + b.h / 2];
  const from = edgePoint(a, bx, by);
  const to = edgePoint(b, ax, ay);
  return {
    path: `M${from.x} ${from.y}L${to.x} ${to.y}`,
    x: Math.round((from.x + to.x) / 2),
    y: Math.round((from.y + to.y) / 2),
  };
}

/** Where the line from the middle of `box` to (x, y) leaves it. */
function edgePoint(box: Box, x: number, y: number): { x: number; y: number } {
  const cx = box.x + box.w / 2;
  const cy = box.y + box.h / 2;
  const [dx, dy] = [x - cx, y - cy];
  const scale = Math.min(
    dx === 0 ? Infinity : box.w / 2 / Math.abs(dx),
    dy === 0 ? Infinity : box.h / 2 / Math.abs(dy),
    1,
  );
  return { x: Math.round(cx + dx * scale), y: Math.round(cy + dy * scale) };
}

/** Boxes that the straight line between the middles would cross: of the same row. */
function boxesBetween(a: Box, b: Box, boxes: Box[]): Box[] {
  const [left, right] = a.x < b.x ? [a, b] : [b, a];
  const y = (a.y + a.h / 2 + b.y + b.h / 2) / 2;
  return boxes.filter(
    (box) => box.x > left.x + left.w && box.x + box.w < right.x && box.y < y && box.y + box.h > y,
  );
}

function arcAround(a: Box, b: Box, between: Box[], height: number): Line {
  const below = a.y + a.h / 2 < height / 2; /* the upper row's lines pass below it */
  const [ax, bx] = [Math.round(a.x + a.w / 2), Math.round(b.x + b.w / 2)];
  const [ay, by] = below ? [a.y + a.h, b.y + b.h] : [a.y, b.y];
  const clear = below
    ? Math.max(...between.map((box) => box.y + box.h)) + 26
    : Math.min(...between.map((box) => box.y)) - 26;
  const bend = Math.round((4 * clear - ay - by) / 2); /* the curve's middle is at `clear` */
  const x = Math.round((ax + bx) / 2);
  return { path: `M${ax} ${ay}Q${x} ${bend} ${bx} ${by}`, x, y: Math.round(clear) };
}

function arcBeside(a: Box, b: Box): Line {
  const [ay, by] = [a.y + 24, b.y + 24];
  const reach = Math.min(RAIL_W - 4, 12 + Math.abs(by - ay) / 40);
  const x = Math.round(a.x - reach);
  return {
    path: `M${a.x} ${ay}C${x} ${ay} ${x} ${by} ${b.x} ${by}`,
    x: x + 4,
    y: Math.round((ay + by) / 2),
  };
}
