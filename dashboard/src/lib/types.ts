/* What a node tells the page (docs/dashboard-api.md). A reading that is not there is null or
 * missing, never zero. Bytes are integers; times are ms since 1970 where the name ends in _ms. */

export type Maybe<T> = T | null | undefined;
export type NodeId = string;
export type Scope = 'read' | 'generate' | 'models' | 'admin';
export type NodeState = 'up' | 'silent' | 'down' | 'waiting';
export type InstanceState = 'idle' | 'placing' | 'loading' | 'ready' | 'failed';
export type Goal = 'latency' | 'throughput';

export interface Session {
  needs_token: boolean;
  signed_in: boolean;
  token: string | null;
  scopes: Scope[];
  node: { id: NodeId; name: string };
  version: string;
  api_base: string;
}

export interface Device {
  name: string;
  kind?: string;
  vendor?: Maybe<string>;
  backend?: string;
  architecture?: Maybe<string>;
  driver_name?: Maybe<string>;
  driver?: Maybe<string>;
  driver_fault?: Maybe<string>;
  compute_units?: Maybe<number>;
  threads_per_block_max?: Maybe<number>;
  clock_mhz_max?: Maybe<number>;
  peer_to_peer?: Maybe<boolean>;
  memory_bytes: Maybe<number>;
  free_bytes: Maybe<number>;
  temperature_c?: Maybe<number>;
  use_share?: Maybe<number>;
  power_w?: Maybe<number>;
  clock_mhz?: Maybe<number>;
  duty_share?: Maybe<number>;
  limit_c?: Maybe<number>;
  predicted_c?: Maybe<number>;
  seconds_to_limit?: Maybe<number>;
  governor?: Maybe<string>;
  decode_bytes_per_s?: Maybe<number>;
  calibrated?: boolean;
  problem?: Maybe<string>;
  stages?: number;
}

export interface Load {
  cpu_share?: Maybe<number>;
  memory_bytes?: Maybe<number>;
  memory_free_bytes?: Maybe<number>;
  memory_pressure_share?: Maybe<number>;
  battery_percent?: Maybe<number>;
  charging?: Maybe<boolean>;
  uptime_s?: Maybe<number>;
}

export interface Machine {
  name: string;
  state: NodeState;
  role?: Maybe<'admin' | 'member'>;
  leads?: boolean;
  votes?: boolean;
  version?: Maybe<string>;
  addresses?: string[];
  problem?: Maybe<string>;
  words?: Maybe<string>;
  draining?: boolean;
  heard_ms?: Maybe<number>; /* since it was last heard; 0 while it is up */
  load?: Maybe<Load>;
  devices?: Record<string, Device>;
}

export interface Link {
  from: NodeId;
  to: NodeId;
  class?: Maybe<string>;
  up: boolean;
  latency_ns?: Maybe<number>;
  jitter_ns?: Maybe<number>;
  loss_ppm?: Maybe<number>;
  bytes_per_s?: Maybe<number>;
}

export interface Fetching {
  verified_bytes: number;
  wanted_bytes: number;
  bytes_per_s?: Maybe<number>;
}

export interface Model {
  bytes: number;
  n_layers: number;
  architecture?: Maybe<string>;
  context_max?: Maybe<number>;
  fetching?: Maybe<Record<NodeId, Fetching>>;
  files?: Maybe<Record<NodeId, number>>;
}

export interface Stage {
  node: NodeId;
  device: string;
  first_layer: number;
  n_layers: number;
  state?: string;
  problem?: Maybe<string>;
  memory_bytes?: Maybe<number>;
}

export interface Instance {
  model: string;
  state: InstanceState;
  problem?: Maybe<string>;
  context: number;
  streams: number;
  goal?: Maybe<string>;
  active?: boolean;
  epoch?: number;
  stages: Stage[];
  next?: Maybe<Stage[]>;
  forecast_decode_tokens_per_s?: Maybe<number>;
  forecast_prefill_tokens_per_s?: Maybe<number>;
  measured_decode_tokens_per_s?: Maybe<number>;
  measured_prefill_tokens_per_s?: Maybe<number>;
  forecast_error_decode?: Maybe<number>;
  forecast_error_first_token?: Maybe<number>;
  requests_active?: Maybe<number>;
  requests_waiting?: Maybe<number>;
  pause?: Maybe<{ since_ms: number; why: string }>;
}

export interface Alert {
  kind: string;
  severity: 'warning' | 'critical';
  subject?: Maybe<Record<string, string>>;
  raised_ms: number;
  cleared_ms?: Maybe<number>;
  text: string;
  mend?: Maybe<string>;
}

export interface Totals {
  devices?: number;
  nodes_up?: number;
  memory_bytes?: Maybe<number>;
  free_bytes?: Maybe<number>;
  decode_bytes_per_s?: Maybe<number>;
  bottleneck_link_bytes_per_s?: Maybe<number>;
  mean_link_bytes_per_s?: Maybe<number>;
  fastest_to_slowest?: Maybe<number>;
  vendors?: Record<string, number>;
  summary?: Maybe<string>;
}

export interface View {
  time_ms: number;
  self: NodeId;
  version?: string;
  cluster: Maybe<{
    id?: Maybe<string>;
    leader?: Maybe<NodeId>;
    generation?: number;
    term?: number;
    voters?: number;
    problem?: Maybe<string>;
    role?: Maybe<string>;
    waiting?: boolean;
  }>;
  nodes: Record<NodeId, Machine>;
  links: Record<string, Link>;
  models: Record<string, Model>;
  instances: Record<string, Instance>;
  alerts: Record<string, Alert>;
  totals: Maybe<Totals>;
}

export interface ClusterEvent {
  index: number;
  time_ms: number;
  by?: Maybe<string>;
  actor?: Maybe<string>;
  text: string;
}

/* ---- answers to questions -------------------------------------------------------------------- */

export interface PlanStage {
  node: string;
  device: string;
  first_layer: number;
  layers: number;
  memory_bytes: number;
  memory_available_bytes?: number;
  decode_s?: number;
  part_of_round?: number;
  hop_s?: number;
  measured?: boolean;
  link?: Maybe<string>;
}

export interface Plan {
  outcome: 'placed' | 'infeasible' | 'undecided';
  possible?: boolean;
  streamed?: { n_layers: number; decode_tokens_per_s: number; resident_tokens_per_s: number; words: string };
  problem?: Maybe<string>;
  model: { name: Maybe<string>; layers: number; weight_bytes: number };
  demand: { goal: string; context: number; streams: number; kv_type?: string; prompt?: number };
  best?: {
    decode_tokens_per_s: number;
    decode_spread?: Maybe<number>;
    prefill_tokens_per_s?: Maybe<number>;
    stages: PlanStage[];
    speeds?: string;
    proved_optimal?: boolean;
    gap?: Maybe<number>;
    bottleneck?: { limit: string; stage: number; part: number; text: string };
  };
  infeasible?: {
    why: Maybe<string>;
    needed_bytes: number;
    available_bytes: number;
    missing_bytes: Maybe<number>;
    remedies: Remedy[];
  };
  devices: PlanDevice[];
  what_if?: WhatIf[];
}

export interface Remedy {
  remedy: string;
  kv_type?: Maybe<string>;
  streams: number;
  context: number;
  node?: Maybe<string>;
  device?: Maybe<string>;
  memory_bytes: number;
  decode_tokens_per_s?: Maybe<number>;
}

export interface PlanDevice {
  node: string;
  device: string;
  memory_bytes?: number;
  state: Maybe<string>;
  why?: Maybe<string>;
}

export interface WhatIf {
  change: 'without_node' | 'without_device' | 'with_device';
  node: string;
  device?: Maybe<string>;
  answer: string;
  decode_tokens_per_s?: Maybe<number>;
}

export interface PlanAsk {
  model: string;
  context: number | null;
  streams: number | null;
  goal: Goal | null;
  without?: string[];
  with?: { node: string; device: string }[];
  layers?: { node: string; device: string; n_layers: number }[];
}

export interface History {
  period_ms: number;
  end_ms: number;
  temperature_c?: Maybe<number>[];
  use_share?: Maybe<number>[];
  power_w?: Maybe<number>[];
  clock_mhz?: Maybe<number>[];
  free_bytes?: Maybe<number>[];
  predicted_c?: Maybe<number>[];
}

export interface RequestStage {
  node: NodeId;
  device: string;
  first_layer: number;
  n_layers: number;
  compute_ms?: Maybe<number>;
  wait_ms?: Maybe<number>;
  link_ms?: Maybe<number>;
  link_bytes?: Maybe<number>;
}

export interface RequestRecord {
  id: string;
  model: string;
  client?: Maybe<string>;
  started_ms: number;
  outcome: Maybe<'done' | 'stopped' | 'cancelled' | 'failed'>;
  prompt_tokens?: Maybe<number>;
  cached_tokens?: Maybe<number>;
  generated_tokens?: Maybe<number>;
  queue_ms?: Maybe<number>;
  ttft_ms?: Maybe<number>;
  total_ms?: Maybe<number>;
  decode_tokens_per_s?: Maybe<number>;
  prefill_tokens_per_s?: Maybe<number>;
  forecast_decode_tokens_per_s?: Maybe<number>;
  driver?: Maybe<NodeId>;
  stages?: RequestStage[];
  pauses?: { at_ms: number; ms: number; why: Maybe<string> }[]; /* at_ms: since 1970 */
  joules?: Maybe<number>;
}

export interface TokenRecord {
  name: string;
  id?: string;
  scopes: string;
  created_ms?: number;
  expires_ms?: number;
  expired?: boolean;
  models?: string[];
  places?: string[];
  requests_per_min?: number;
  streams?: number;
  tokens_per_day?: number;
}
