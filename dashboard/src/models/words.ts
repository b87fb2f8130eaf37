/* An instance's state as words for people. */
import type { Instance } from '../lib/types.ts';

export function instanceWords(instance: Instance | undefined): string {
  if (!instance) return 'not loaded';
  if (instance.pause) return 'paused';
  const words = {
    idle: 'asleep',
    placing: 'finding a place',
    loading: 'loading',
    ready: 'ready',
    failed: 'cannot run',
  } as const;
  return words[instance.state] ?? instance.state;
}

export function instanceKind(
  instance: Instance | undefined,
): 'plain' | 'good' | 'warn' | 'bad' | 'busy' {
  if (!instance || instance.state === 'idle') return 'plain';
  if (instance.pause) return 'warn';
  if (instance.state === 'failed') return 'bad';
  return instance.state === 'ready' ? 'good' : 'busy';
}
