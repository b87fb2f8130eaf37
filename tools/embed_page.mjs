// Builds the dashboard with Vite and writes it into C, compressed. Part of the build.
//
//     node embed_page.mjs DASHBOARD OUT.c OUT.d SCRATCH
//
// OUT.c defines `page_files` and `n_page_files` (src/api/page.h). OUT.d names the sources for ninja.
// SCRATCH is a folder that is emptied. The same sources make the same bytes.
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { extname, join, relative, resolve } from 'node:path';
import { gzipSync } from 'node:zlib';
import { build } from 'vite';

const TYPES = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.json': 'application/json',
  '.png': 'image/png',
  '.svg': 'image/svg+xml',
  '.webmanifest': 'application/manifest+json',
  '.woff2': 'font/woff2',
};

function filesBelow(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
}

function foldersBelow(folder) {
  const below = readdirSync(folder, { recursive: true, withFileTypes: true });
  return [folder, ...below.filter((e) => e.isDirectory()).map((e) => join(e.parentPath, e.name))];
}

function bytesInC(bytes) {
  const lines = [];
  for (let i = 0; i < bytes.length; i += 32) lines.push('    ' + [...bytes.subarray(i, i + 32)].join(',') + ',');
  return lines.join('\n');
}

/** One row of page_files, and the bytes that it points to. */
function embed(file, folder, number) {
  const path = '/' + relative(folder, file).replace(/^index\.html$/, '');
  const type = TYPES[extname(file)];
  if (!type) throw new Error(`${path}: tools/embed_page.mjs does not know the type of such files`);
  if (!/^[\x21-\x7e]*$/.test(path) || /["\\]/.test(path)) throw new Error(`${path}: not a plain name`);
  const bytes = readFileSync(file);
  const gzip = gzipSync(bytes, { level: 9 });
  const hash = createHash('sha256').update(bytes).digest('hex').slice(0, 24);
  return {
    array: `static const uint8_t file_${number}[] = {\n${bytesInC(gzip)}\n};\n`,
    row:
      `    {"${path}", "${type}", "${hash}", file_${number}, sizeof file_${number}, ` +
      `${bytes.length}, ${path.startsWith('/assets/')}},`,
  };
}

async function main([dashboard, source, depfile, scratch]) {
  const root = resolve(dashboard);
  const outDir = resolve(scratch);
  await build({ root, configFile: join(root, 'vite.config.mts'), logLevel: 'warn', build: { outDir, emptyOutDir: true } });
  const files = filesBelow(outDir).map((file, i) => embed(file, outDir, i));
  writeFileSync(
    source,
    `#include "api/page.h"\n\n${files.map((f) => f.array).join('\n')}\n` +
      `const struct page_file page_files[] = {\n${files.map((f) => f.row).join('\n')}\n};\n` +
      `const size_t n_page_files = sizeof page_files / sizeof *page_files;\n`,
  );
  // Folders, too: a file that is added or removed changes its folder.
  const names = [...filesBelow(root), ...foldersBelow(root)].map((name) => name.replace(/[ #$]/g, '\\$&'));
  writeFileSync(depfile, `${source}: ${names.join(' \\\n  ')}\n`);
}

main(process.argv.slice(2)).catch((error) => {
  console.error(`embed_page: ${error.message ?? error}`);
  process.exit(1);
});
