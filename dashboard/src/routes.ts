/* The views, by the hash of the address; each is loaded when it is first opened. */
import type { Component } from 'svelte';
import type { Scope } from './lib/types.ts';
import type { IconName } from './ui/Icon.svelte';

export interface ViewEntry {
  name: string;
  title: string;
  icon: IconName;
  scope: Scope; /* who lacks it does not see the view */
  load: () => Promise<{ default: Component }>;
}

export const views: ViewEntry[] = [
  {
    name: 'cluster',
    title: 'Cluster',
    icon: 'cluster',
    scope: 'read',
    load: () => import('./cluster/Cluster.svelte'),
  },
  {
    name: 'models',
    title: 'Models',
    icon: 'models',
    scope: 'read',
    load: () => import('./models/Models.svelte'),
  },
  {
    name: 'chat',
    title: 'Chat',
    icon: 'chat',
    scope: 'generate',
    load: () => import('./chat/Chat.svelte'),
  },
  {
    name: 'activity',
    title: 'Activity',
    icon: 'activity',
    scope: 'read',
    load: () => import('./activity/Activity.svelte'),
  },
  {
    name: 'connect',
    title: 'Connect',
    icon: 'connect',
    scope: 'generate',
    load: () => import('./connect/Connect.svelte'),
  },
  {
    name: 'benchmark',
    title: 'Benchmark',
    icon: 'benchmark',
    scope: 'generate',
    load: () => import('./benchmark/Benchmark.svelte'),
  },
  {
    name: 'join',
    title: 'Join',
    icon: 'join',
    scope: 'read',
    load: () => import('./join/Join.svelte'),
  },
];

/** How many of them a phone's bottom bar shows beside "More". */
export const VIEWS_BELOW = 4;
