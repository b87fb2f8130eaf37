/* Cuts Markdown into pieces that can be rendered one by one, so that a long answer stays cheap
 * while it streams: only the last piece changes. Pure.
 *
 * A cut is at a blank line outside a code fence, where what follows is neither indented nor, after a
 * list, another point of it. Link definitions of one piece are not known in another; models hardly
 * write any. */

interface Fence {
  mark: string; // "`" or "~"
  length: number;
}

const FENCE = /^ {0,3}(`{3,}|~{3,})(.*)$/;
const LIST_POINT = /^ {0,3}([-*+]|\d{1,9}[.)])(\s|$)/;

export class BlockSplitter {
  #text = '';
  #blocks: string[] = []; // closed ones
  #start = 0; // of the open block in #text
  #at = 0; // of the first line that is not scanned
  #fence: Fence | null = null;
  #isList = false; // the open block begins with a point of a list
  #isBlank = false; // the line before was

  /* All pieces of `text`; joined they are the text. Cheap when `text` only got longer. */
  update(text: string): string[] {
    if (!text.startsWith(this.#text)) this.#clear();
    this.#text = text;
    for (let end = text.indexOf('\n', this.#at); end >= 0; end = text.indexOf('\n', this.#at)) {
      this.#scanLine(text.slice(this.#at, end));
      this.#at = end + 1;
    }
    return this.#start < text.length
      ? [...this.#blocks, text.slice(this.#start)]
      : [...this.#blocks];
  }

  /* The last piece is within a code fence that has not ended. */
  get isInFence(): boolean {
    return this.#fence !== null;
  }

  #clear(): void {
    this.#blocks = [];
    this.#start = this.#at = 0;
    this.#fence = null;
    this.#isList = this.#isBlank = false;
  }

  #scanLine(line: string): void {
    if (this.#fence) {
      this.#scanFence(this.#fence, line);
      return;
    }
    if (line.trim() === '') {
      this.#isBlank = true;
      return;
    }
    if (this.#isBlank && this.#mayCut(line)) this.#cut();
    if (this.#start === this.#at) this.#isList = LIST_POINT.test(line);
    this.#isBlank = false;
    const found = FENCE.exec(line);
    if (found && !(found[1]![0] === '`' && found[2]!.includes('`')))
      this.#fence = { mark: found[1]![0]!, length: found[1]!.length };
  }

  #scanFence(fence: Fence, line: string): void {
    const found = FENCE.exec(line);
    if (!found || found[1]![0] !== fence.mark || found[1]!.length < fence.length) return;
    if (found[2]!.trim() === '') this.#fence = null;
  }

  #mayCut(line: string): boolean {
    if (/^[ \t]/.test(line)) return false;
    return !(this.#isList && LIST_POINT.test(line));
  }

  #cut(): void {
    if (this.#at > this.#start) this.#blocks.push(this.#text.slice(this.#start, this.#at));
    this.#start = this.#at;
  }
}

/* Text in pieces of some lines each, so that a browser lays out only the last one anew. */
export function linePieces(text: string, nLines = 60): string[] {
  const pieces: string[] = [];
  let start = 0;
  let n = 0;
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) {
    if (++n < nLines) continue;
    pieces.push(text.slice(start, at + 1));
    start = at + 1;
    n = 0;
  }
  return start < text.length ? [...pieces, text.slice(start)] : pieces;
}
