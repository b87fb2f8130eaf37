/* A QR code as one SVG path: a square of 1 × 1 for each dark module. Pure, but for uqr's tables. */
import { encode } from 'uqr';

export interface QrDrawing {
  size: number; /* with its quiet zone */
  path: string;
}

export function qrOf(text: string): QrDrawing {
  const { data, size } = encode(text, { border: 4, ecc: 'M' });
  let path = '';
  data.forEach((row, y) => {
    for (let x = 0; x < row.length; x++) {
      if (!row[x]) continue;
      let end = x + 1;
      while (row[end]) end += 1;
      path += `M${x} ${y}h${end - x}v1h-${end - x}z`;
      x = end;
    }
  });
  return { size, path };
}

/** The address that a phone opens; `url` as the node gave it, else this page's own. */
export function passAddress(url: string | null | undefined, pass: string, here: string): string {
  const base = (url || here).replace(/\/+$/, '');
  return `${base}/#/join?pass=${encodeURIComponent(pass)}`;
}
