import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// `npm run dev` serves the sources and passes requests on to a node: `medley up` on this machine.
// Host is left as the browser sent it, so that the node sees one origin.
const node = { target: 'http://127.0.0.1:8080', changeOrigin: false };

const here = decodeURIComponent(new URL('.', import.meta.url).pathname).replace(/\/$/, '');

export default defineConfig({
  // Svelte names styles after their files: as seen from here, or each source tree has other names.
  plugins: [svelte({ compilerOptions: { rootDir: here } })],
  build: {
    target: 'es2022',
    assetsInlineLimit: 0, // the page's policy forbids fonts and scripts in data: addresses
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 500,
  },
  server: { proxy: { '/api': node, '/v1': node, '/health': node, '/metrics': node } },
});
