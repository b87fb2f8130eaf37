/* What a model thinks before it answers, told apart from the answer. Pure. Models write it between
 * <think> and </think>; some templates write the first tag themselves, so that an answer begins
 * within it. */

export interface Thought {
  thinking: string; // '': none
  answer: string;
  isOpen: boolean; // it thinks still
}

const OPEN = '<think>';
const CLOSE = '</think>';

/* Without the beginning of `tag` that stands at the end: the rest of it may come yet. */
function withoutHalfTag(text: string, tag: string): string {
  for (let n = Math.min(tag.length - 1, text.length); n > 0; n--)
    if (text.endsWith(tag.slice(0, n))) return text.slice(0, -n);
  return text;
}

/* `isStreaming`: more may come, so that half a tag at the end is not shown yet. */
export function thoughtSplit(text: string, reasoning: string, isStreaming: boolean): Thought {
  if (reasoning)
    return { thinking: reasoning, answer: text, isOpen: isStreaming && text === '' };
  const trimmed = text.trimStart();
  const begins = trimmed.startsWith(OPEN);
  const close = text.indexOf(CLOSE);
  if (close >= 0 && (begins || !text.slice(0, close).includes(OPEN))) {
    const inside = text.slice(0, close);
    return {
      thinking: (begins ? inside.trimStart().slice(OPEN.length) : inside).trim(),
      answer: text.slice(close + CLOSE.length).trimStart(),
      isOpen: false,
    };
  }
  if (begins) {
    const inside = trimmed.slice(OPEN.length);
    const shown = isStreaming ? withoutHalfTag(inside, CLOSE) : inside;
    return { thinking: shown.trim(), answer: '', isOpen: isStreaming };
  }
  if (isStreaming && trimmed && OPEN.startsWith(trimmed))
    return { thinking: '', answer: '', isOpen: false };
  return { thinking: '', answer: text, isOpen: false };
}
