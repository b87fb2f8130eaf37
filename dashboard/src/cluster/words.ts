/* States as words for people. */
import type { Machine } from '../lib/types.ts';

export function stateWords(node: Machine): string {
  if (node.state === 'up' && node.draining) return 'draining';
  if (node.state === 'silent') return 'no answer';
  if (node.state === 'waiting') return 'wants to join';
  return node.state;
}

export function pillKind(node: Machine): 'good' | 'warn' | 'bad' | 'busy' {
  if (node.state === 'up') return node.draining ? 'warn' : 'good';
  return node.state === 'waiting' ? 'busy' : node.state === 'silent' ? 'warn' : 'bad';
}
