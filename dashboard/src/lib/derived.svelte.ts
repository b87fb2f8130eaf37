/* What several views read from the live view, worked out once. */
import { modelColours } from './colours.ts';
import { live } from './live.svelte.ts';
import type { Stage } from './types.ts';

export interface DeviceStage {
  instance: string;
  model: string;
  stage: Stage;
  bytes: number | null; /* as the node says; else its layers' share of the file */
}

const colours = $derived(modelColours(Object.keys(live.view.models)));

export function colourOf(model: string): string {
  return `var(--model-${colours.get(model) ?? 0})`;
}

function stagesByDevice(): Map<string, DeviceStage[]> {
  const out = new Map<string, DeviceStage[]>();
  for (const [id, instance] of Object.entries(live.view.instances)) {
    for (const stage of instance.stages ?? []) {
      const key = `${stage.node}/${stage.device}`;
      const list = out.get(key) ?? [];
      const model = live.view.models[instance.model];
      const share = model?.n_layers ? (model.bytes * stage.n_layers) / model.n_layers : null;
      list.push({ instance: id, model: instance.model, stage, bytes: stage.memory_bytes ?? share });
      out.set(key, list);
    }
  }
  return out;
}

const byDevice = $derived(stagesByDevice());

export function stagesOf(node: string, device: string): DeviceStage[] {
  return byDevice.get(`${node}/${device}`) ?? [];
}

export function nodeName(id: string | null | undefined): string {
  return (id && live.view.nodes[id]?.name) || 'a machine that has left';
}

export function nodeId(name: string): string | undefined {
  return Object.entries(live.view.nodes).find(([, node]) => node.name === name)?.[0];
}
