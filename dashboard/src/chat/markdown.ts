/* Markdown of a model as HTML that can do nothing but be read. Foreign text: whoever wrote what the
 * model read may have told it what to write.
 *
 * Three walls, each enough by itself: HTML in the text is shown as text; what marked makes is
 * reduced by DOMPurify to the elements and attributes listed here; and the page's
 * Content-Security-Policy runs no script and loads nothing from elsewhere. Images are shown as
 * links, for loading one would tell its server what was said. */
import DOMPurify, { type DOMPurify as Purifier } from 'dompurify';
import { Marked, type Tokens } from 'marked';

const SCHEMES = /^(https?|mailto):/i;
export const TEXT_MAX = 2 * 1024 * 1024; // of one piece, in UTF-16 units

export function textEscape(text: string): string {
  const escapes: Record<string, string> = {
    '&': '&amp;',
    '<': '&lt;',
    '>': '&gt;',
    '"': '&quot;',
    "'": '&#39;',
  };
  return text.replace(/[&<>"']/g, (letter) => escapes[letter]!);
}

/* null: not a link that may be followed. Relative ones are not: they would lead into this page. */
export function linkCheck(href: string): string | null {
  // eslint-disable-next-line no-control-regex
  const clean = href.replace(/[\u0000-\u0020\u007f-\u009f\u200b-\u200f\u2028-\u202e\ufeff]/g, '');
  if (!SCHEMES.test(clean)) return null;
  try {
    const url = new URL(clean);
    return /^(https?|mailto):$/.test(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/* The first word after the fence, for the heading of the block. */
export function languageOf(info: string | undefined): string {
  return /^[A-Za-z0-9+#._-]{1,30}/.exec(info?.trim() ?? '')?.[0] ?? '';
}

function linkHtml(href: string, inner: string): string {
  const good = linkCheck(href);
  if (!good) return `<span>${inner}</span>`;
  return `<a href="${textEscape(good)}" target="_blank" rel="noopener noreferrer nofollow">${inner}</a>`;
}

export function codeHtml(text: string, language: string): string {
  return (
    `<div class="code"><div class="code-head"><span>${textEscape(language || 'text')}</span>` +
    `<button type="button" class="code-copy">Copy</button></div>` +
    `<pre tabindex="0"><code>${textEscape(text)}</code></pre></div>`
  );
}

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    html: ({ text }: Tokens.HTML | Tokens.Tag) => textEscape(text),
    code: ({ text, lang }: Tokens.Code) => codeHtml(text, languageOf(lang)),
    image: ({ href, text }: Tokens.Image) =>
      linkHtml(href, `Image: ${textEscape(text || href)}`),
    link({ href, tokens }: Tokens.Link) {
      return linkHtml(href, this.parser.parseInline(tokens));
    },
    checkbox: ({ checked }: Tokens.Checkbox) => (checked ? '☑ ' : '☐ '),
  },
});

const ELEMENTS = [
  'a', 'blockquote', 'br', 'button', 'code', 'del', 'div', 'em', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6',
  'hr', 'li', 'ol', 'p', 'pre', 'span', 'strong', 'table', 'tbody', 'td', 'th', 'thead', 'tr', 'ul',
];
const ATTRIBUTES = ['href', 'target', 'rel', 'class', 'type', 'start', 'tabindex', 'align'];
const CLASSES = ['code', 'code-head', 'code-copy'];

let purifier: Purifier | null = null;

function purifierReady(): Purifier {
  if (purifier) return purifier;
  purifier = DOMPurify(window);
  purifier.addHook('uponSanitizeAttribute', (_node, data) => {
    if (data.attrName === 'class') data.keepAttr = CLASSES.includes(data.attrValue);
    if (data.attrName === 'href') data.keepAttr = linkCheck(data.attrValue) !== null;
  });
  purifier.addHook('afterSanitizeAttributes', (node) => {
    if (node.tagName !== 'A') return;
    node.setAttribute('rel', 'noopener noreferrer nofollow');
    node.setAttribute('target', '_blank');
  });
  return purifier;
}

export function htmlClean(html: string): string {
  return purifierReady().sanitize(html, {
    ALLOWED_TAGS: ELEMENTS,
    ALLOWED_ATTR: ATTRIBUTES,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    ADD_ATTR: ['target'],
  });
}

/* Before htmlClean(); for tests without a browser. */
export function markdownToHtml(text: string): string {
  if (text.length > TEXT_MAX) return `<p>${textEscape(text)}</p>`;
  try {
    return marked.parse(text, { async: false });
  } catch {
    return `<p>${textEscape(text)}</p>`;
  }
}

export function markdownRender(text: string): string {
  return htmlClean(markdownToHtml(text));
}
