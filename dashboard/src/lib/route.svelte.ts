/* Hash routes: `#/models/llama` is view "models" with rest ["llama"]; `?a=b` behind it is the query. */

export interface Route {
  view: string;
  rest: string[];
  query: URLSearchParams;
}

export function parseRoute(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  const [view = '', ...rest] = path.split('/').map((word) => {
    try {
      return decodeURIComponent(word);
    } catch {
      return word;
    }
  });
  return { view, rest: rest.filter((word) => word !== ''), query: new URLSearchParams(query) };
}

export function href(...words: string[]): string {
  return '#/' + words.map(encodeURIComponent).join('/');
}

export const route: { now: Route } = $state({ now: parseRoute('') });

export function routeStart(): void {
  const read = () => (route.now = parseRoute(location.hash));
  window.addEventListener('hashchange', read);
  read();
}

export function go(...words: string[]): void {
  location.hash = href(...words);
}
