/* What the band at the top says: the worst first, each with what is being done or what to do. Pure. */
import { count, listed, sentence } from '../lib/format.ts';
import type { Phase } from '../lib/live-core.ts';
import type { View } from '../lib/types.ts';

export interface Trouble {
  id: string;
  kind: 'warn' | 'bad';
  text: string;
  doing: string; /* what is being done, or what to do */
  href?: string;
}

function ofStream(phase: Phase): Trouble[] {
  if (phase === 'waiting')
    return [
      {
        id: 'stream',
        kind: 'bad',
        text: 'Lost the connection to this node.',
        doing: 'Trying again. What you see may be old.',
      },
    ];
  if (phase === 'stale')
    return [
      {
        id: 'stream',
        kind: 'warn',
        text: 'No news from this node for some seconds.',
        doing: 'Waiting for it. What you see may be old.',
      },
    ];
  return [];
}

function ofNodes(view: View): Trouble[] {
  const names = (state: string) =>
    Object.values(view.nodes)
      .filter((node) => node.state === state)
      .map((node) => node.name)
      .sort();
  const out: Trouble[] = [];
  const silent = names('silent');
  const down = names('down');
  if (silent.length)
    out.push({
      id: 'silent',
      kind: 'warn',
      text: `${listed(silent)} ${silent.length === 1 ? 'does' : 'do'} not answer.`,
      doing: 'If this lasts, the other machines take over its layers.',
    });
  if (down.length)
    out.push({
      id: 'down',
      kind: 'warn',
      text: `${listed(down)} ${down.length === 1 ? 'is' : 'are'} down.`,
      doing: 'The other machines carry on. Start it again, or remove it for good.',
      href: '#/cluster',
    });
  return out;
}

function ofInstances(view: View): Trouble[] {
  const out: Trouble[] = [];
  for (const [id, instance] of Object.entries(view.instances)) {
    if (instance.pause)
      out.push({
        id: `pause-${id}`,
        kind: 'warn',
        text: `${instance.model} is paused: ${instance.pause.why}.`,
        doing: 'Answers go on by themselves, with the same text.',
        href: '#/models',
      });
    else if (instance.state === 'failed')
      out.push({
        id: `failed-${id}`,
        kind: 'bad',
        text: `${instance.model} cannot run: ${instance.problem ?? 'the reason is not known'}.`,
        doing: 'Medley tries again. See the plan for what would help.',
        href: `#/models/${encodeURIComponent(instance.model)}`,
      });
  }
  return out;
}

function ofAlerts(view: View): Trouble[] {
  return Object.entries(view.alerts)
    .filter(([, alert]) => alert.kind !== 'node_lost')
    .sort((a, b) => b[1].raised_ms - a[1].raised_ms)
    .map(([id, alert]) => ({
      id: `alert-${id}`,
      kind: alert.severity === 'critical' ? 'bad' : 'warn',
      text: sentence(alert.text),
      doing: alert.mend ?? '',
      href: '#/activity',
    }));
}

export function troubles(view: View, phase: Phase): Trouble[] {
  const all = [...ofStream(phase), ...ofInstances(view), ...ofNodes(view), ...ofAlerts(view)];
  const problem = view.cluster?.problem;
  if (problem)
    all.unshift({ id: 'cluster', kind: 'bad', text: problem, doing: '', href: '#/activity' });
  return [...all.filter((one) => one.kind === 'bad'), ...all.filter((one) => one.kind === 'warn')];
}

/** For the line that stands for those that do not fit. */
export function moreWords(n: number): string {
  return `${count(n, 'more thing needs', 'more things need')} a look`;
}
