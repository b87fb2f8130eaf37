/* A chat that goes on at another node's page: carried there in the link's fragment, which no server
 * sees. The page may not ask another node itself (Content-Security-Policy), but it may lead there,
 * and an answer's id and position are good at every node.
 *
 * A link can come from anybody: what is read is checked and bounded, and the reader is asked. */
import type { View } from '../lib/types.ts';
import { conversationRead } from './transfer.ts';
import { type Conversation, pathOf } from './tree.ts';

export const CARRY_LETTERS_MAX = 512 * 1024;
export const CARRY_BYTES_MAX = 8 * 1024 * 1024; // when it is unpacked

function lettersOf(bytes: Uint8Array): string {
  let text = '';
  for (let at = 0; at < bytes.length; at += 8192)
    text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}

function bytesOf(letters: string): Uint8Array<ArrayBuffer> {
  const text = atob(letters.replaceAll('-', '+').replaceAll('_', '/'));
  return Uint8Array.from(text, (letter) => letter.charCodeAt(0));
}

/* Throws when there are more than `most`. */
async function readAll(stream: ReadableStream<Uint8Array>, most: number): Promise<Uint8Array> {
  const reader = stream.getReader();
  const pieces: Uint8Array[] = [];
  let size = 0;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > most) {
      await reader.cancel();
      throw new RangeError('too large');
    }
    pieces.push(value);
  }
  const all = new Uint8Array(size);
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

const through = (bytes: BlobPart, filter: CompressionStream | DecompressionStream) =>
  new Blob([bytes]).stream().pipeThrough(filter as unknown as ReadableWritablePair<Uint8Array, Uint8Array>);

/* The branch that is shown. null: too long for a link. */
export async function carryWrite(conversation: Conversation): Promise<string | null> {
  const shown: Conversation = { ...conversation, messages: pathOf(conversation), chosen: {} };
  try {
    const packed = await readAll(
      through(JSON.stringify(shown), new CompressionStream('gzip')),
      CARRY_LETTERS_MAX,
    );
    const letters = lettersOf(packed);
    return letters.length <= CARRY_LETTERS_MAX ? letters : null;
  } catch {
    return null;
  }
}

/* null: it is none, or too large. */
export async function carryRead(letters: string): Promise<Conversation | null> {
  if (letters.length > CARRY_LETTERS_MAX || !/^[A-Za-z0-9_-]+$/.test(letters)) return null;
  try {
    const bytes = await readAll(
      through(bytesOf(letters), new DecompressionStream('gzip')),
      CARRY_BYTES_MAX,
    );
    return conversationRead(JSON.parse(new TextDecoder().decode(bytes)));
  } catch {
    return null;
  }
}

export interface OtherPage {
  name: string;
  origin: string;
}

/* "192.168.1.20:7979" and "[fd00::1]:7979" without the port. */
function hostOf(address: string): string | null {
  const found = /^(\[[0-9a-f:.]+\]|[^:[\]]+):\d+$/i.exec(address);
  return found?.[1] ?? null;
}

const isLoopback = (host: string): boolean => /^(127\.|localhost$|\[::1\]$)/.test(host);
const isLinkLocal = (host: string): boolean => /^(169\.254\.|\[fe[89ab])/i.test(host);

/* Where the other nodes' pages should be: this page's scheme and port at their addresses. Whether
 * their API listens there, only trying tells. */
export function otherPages(view: View, here: { protocol: string; hostname: string; port: string }): OtherPage[] {
  const port = here.port ? `:${here.port}` : '';
  return Object.entries(view.nodes)
    .filter(([id, node]) => id !== view.self && node.state === 'up')
    .map(([, node]) => {
      const host = (node.addresses ?? [])
        .map(hostOf)
        .find((each) => each && isLoopback(each) === isLoopback(here.hostname) && !isLinkLocal(each));
      return host && host !== here.hostname
        ? { name: node.name, origin: `${here.protocol}//${host}${port}` }
        : null;
    })
    .filter((page) => page !== null);
}
