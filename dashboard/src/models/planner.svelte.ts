/* Asks the node for a forecast whenever the question changes: a little later than the last change,
 * and a new question cancels the one before. */
import { postJson, textOf, wasCancelled } from '../lib/api.ts';
import type { Plan, PlanAsk } from '../lib/types.ts';

const PAUSE_MS = 160;

export interface Forecast {
  plan: Plan | null; /* the last answer, also while the next is awaited */
  busy: boolean;
  problem: string | null;
}

export class Planner {
  forecast: Forecast = $state({ plan: null, busy: false, problem: null });
  #timer = 0;
  #running: AbortController | null = null;
  #asked = '';

  ask(question: PlanAsk): void {
    const text = JSON.stringify(question);
    if (text === this.#asked) return;
    const first = this.#asked === '';
    this.#asked = text;
    this.#running?.abort();
    window.clearTimeout(this.#timer);
    this.forecast.busy = true;
    this.#timer = window.setTimeout(() => void this.#send(question), first ? 0 : PAUSE_MS);
  }

  /** Asks the same again: the cluster has changed. */
  again(question: PlanAsk): void {
    this.#asked = '';
    this.ask(question);
  }

  close(): void {
    window.clearTimeout(this.#timer);
    this.#running?.abort();
  }

  async #send(question: PlanAsk): Promise<void> {
    const controller = new AbortController();
    this.#running = controller;
    try {
      const plan = await postJson<Plan>('/api/plan', { ...question }, controller.signal);
      this.forecast = { plan, busy: false, problem: null };
    } catch (problem) {
      if (wasCancelled(problem) || controller.signal.aborted) return;
      this.forecast = { plan: null, busy: false, problem: textOf(problem) };
    }
  }
}
