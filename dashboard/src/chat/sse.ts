/* Server-sent events (HTML standard, section 9.2.6), read from pieces of text that may be cut
 * anywhere. Pure. Comments are kept: Medley sends them as signs of life, and they say what an answer
 * waits for. */

export type SseItem =
  | { kind: 'event'; id: string; event: string; data: string }
  | { kind: 'comment'; text: string };

/* One line, or the data of one event, must not be longer: a peer that never ends it would fill the
 * browser's memory. In UTF-16 units. */
export const SSE_LINE_MAX = 4 * 1024 * 1024;

export class SseParser {
  #rest = ''; // of a line that has not ended
  #scanned = 0; // of #rest, without finding an end
  #afterReturn = false; // a line ended with CR; an LF that follows belongs to it
  #isFirst = true;
  #id = '';
  #event = '';
  #data = '';
  #hasData = false;

  /* What is complete with this piece. Throws RangeError when a line is too long. */
  push(piece: string): SseItem[] {
    const items: SseItem[] = [];
    let text = piece;
    if (this.#isFirst && text) {
      this.#isFirst = false;
      if (text.startsWith('\uFEFF')) text = text.slice(1);
    }
    if (this.#afterReturn && text) {
      this.#afterReturn = false;
      if (text.startsWith('\n')) text = text.slice(1);
    }
    this.#rest += text;
    this.#takeLines(items);
    if (this.#rest.length > SSE_LINE_MAX) throw new RangeError('a line of the stream is too long');
    return items;
  }

  #takeLines(items: SseItem[]): void {
    let start = 0;
    const end = /[\r\n]/g;
    end.lastIndex = this.#scanned;
    for (let found = end.exec(this.#rest); found; found = end.exec(this.#rest)) {
      this.#takeLine(this.#rest.slice(start, found.index), items);
      start = found.index + 1;
      if (found[0] === '\r') {
        if (start === this.#rest.length) this.#afterReturn = true;
        else if (this.#rest[start] === '\n') start++;
      }
      end.lastIndex = start;
    }
    this.#rest = this.#rest.slice(start);
    this.#scanned = this.#rest.length;
  }

  #takeLine(line: string, items: SseItem[]): void {
    if (line === '') return this.#dispatch(items);
    if (line.startsWith(':')) {
      items.push({ kind: 'comment', text: line.slice(1).trim() });
      return;
    }
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? '' : line.slice(colon + 1);
    if (value.startsWith(' ')) value = value.slice(1);
    if (field === 'data') this.#takeData(value);
    else if (field === 'event') this.#event = value;
    else if (field === 'id' && !value.includes('\0')) this.#id = value;
  }

  #takeData(value: string): void {
    this.#data = this.#hasData ? `${this.#data}\n${value}` : value;
    this.#hasData = true;
    if (this.#data.length > SSE_LINE_MAX) throw new RangeError('an event of the stream is too long');
  }

  #dispatch(items: SseItem[]): void {
    if (this.#hasData)
      items.push({
        kind: 'event',
        id: this.#id,
        event: this.#event || 'message',
        data: this.#data,
      });
    this.#event = '';
    this.#data = '';
    this.#hasData = false;
  }
}
