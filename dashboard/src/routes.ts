// The views, by the hash of the address: `/#/models` is Models. What follows a `?` is the view's.
import type { Component } from 'svelte';
import Activity from './views/Activity.svelte';
import Benchmark from './views/Benchmark.svelte';
import Chat from './views/Chat.svelte';
import Cluster from './views/Cluster.svelte';
import Connect from './views/Connect.svelte';
import Join from './views/Join.svelte';
import Models from './views/Models.svelte';

export interface View {
  name: string;
  title: string;
  component: Component;
}

export const views: View[] = [
  { name: 'cluster', title: 'Cluster', component: Cluster },
  { name: 'models', title: 'Models', component: Models },
  { name: 'chat', title: 'Chat', component: Chat },
  { name: 'connect', title: 'Connect', component: Connect },
  { name: 'benchmark', title: 'Benchmark', component: Benchmark },
  { name: 'activity', title: 'Activity', component: Activity },
  { name: 'join', title: 'Join', component: Join },
];

/** The view of a hash such as `#/join?pass=x`; undefined: there is none. */
export function findView(hash: string): View | undefined {
  const name = hash.replace(/^#\/?/, '').split(/[/?]/)[0] || 'cluster';
  return views.find((view) => view.name === name);
}
