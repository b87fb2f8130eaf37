/* The one table of what /metrics shows: a row for each metric. docs/monitoring.md has the same
 * rows, which tests/metrics/check_table.py compares.
 *
 *     X(NAME, "name", KIND, "label,label", "help")
 *
 * Units are Prometheus' base units and stand in the name. Who exports what, so that nothing counts
 * twice when all nodes are scraped:
 *
 *   device, node, link       the machine that has it; a link, the end that measured it
 *   requests by model        the node at whose API they were asked for
 *   driver, slots, instance  the node that has the instance's driver
 *   consensus                every node, of itself
 *   cluster, alerts          the leader alone
 *
 * Bounded labels: `model` METRICS_MODELS names; requests for further ones are of the model "other",
 * and further instances are not shown. `device` LIMIT_DEVICES. `peer` METRICS_PEERS, and the rest
 * is counted in medley_links_left_out. `kind` of alerts METRICS_ALERTS. All others are words of the
 * program.
 */
#pragma once

enum {
    METRICS_MODELS = 32,
    METRICS_PEERS = 128,
    METRICS_ALERTS = 64, /* pairs of kind and severity */
};

/* KIND of a histogram: which limits its buckets have (histogram.h). */
#define METRICS_TABLE(X)                                                                           \
    X(BUILD_INFO, "medley_build_info", GAUGE, "version", "The running version.")                   \
    X(HTTP_REQUESTS, "medley_http_requests_total", COUNTER, "route,status", "Answered requests.")  \
    X(HTTP_SECONDS, "medley_http_request_seconds", SECONDS, "",                                    \
      "From a request's headers to the end of its answer.")                                        \
    X(HTTP_ACTIVE, "medley_requests_active", GAUGE, "", "Requests being answered.")                \
    X(CONNECTIONS, "medley_connections", GAUGE, "", "Open connections.")                           \
    X(CONNECTIONS_CLOSED, "medley_connections_closed_total", COUNTER, "",                          \
      "Connections that were closed to make room for others.")                                     \
    X(CONNECTIONS_REFUSED, "medley_connections_refused_total", COUNTER, "",                        \
      "Connections of clients that had too many requests under way.")                              \
    X(REQUESTS_CANCELLED, "medley_requests_cancelled_total", COUNTER, "",                          \
      "Requests whose client left or read too slowly.")                                            \
    X(PREPARE_WAITING, "medley_prepare_waiting", GAUGE, "",                                        \
      "Steps of requests that wait for the preparer.")                                             \
    X(API_MEMORY, "medley_api_memory_bytes", GAUGE, "",                                            \
      "Memory that requests have, of the limit `memory`.")                                         \
    X(API_MEMORY_PEAK, "medley_api_memory_peak_bytes", GAUGE, "", "The most that it has been.")    \
    X(LOOP_HOLD, "medley_loop_hold_seconds", SECONDS, "",                                          \
      "For so long a callback of the API has held the node's loop.")                               \
    X(LOOP_HOLD_MAX, "medley_loop_hold_max_seconds", GAUGE, "",                                    \
      "The longest that the API has held the node's loop.")                                        \
    X(LOOP_TURN, "medley_loop_turn_seconds", SECONDS, "",                                          \
      "Processor time of a turn of the node's loop, between two waits.")                           \
    X(LOOP_TURN_MAX, "medley_loop_turn_max_seconds", GAUGE, "",                                    \
      "The most processor time of one turn of the node's loop.")                                   \
    X(REQUESTS, "medley_requests_total", COUNTER, "model,outcome",                                 \
      "Completions that are over: done, stopped, cancelled or failed.")                            \
    X(PROMPT_TOKENS, "medley_prompt_tokens_total", COUNTER, "model",                               \
      "Prompt tokens of completions that are over.")                                               \
    X(CACHED_TOKENS, "medley_cached_tokens_total", COUNTER, "model",                               \
      "Of those, tokens reused from a slot.")                                                      \
    X(GENERATED_TOKENS, "medley_generated_tokens_total", COUNTER, "model",                         \
      "Tokens sent to clients.")                                                                   \
    X(EMBEDDED_TOKENS, "medley_embedded_tokens_total", COUNTER, "", "Tokens of embedded texts.")   \
    X(QUEUE_SECONDS, "medley_request_queue_seconds", LONG_SECONDS, "model",                        \
      "From being submitted to having a slot.")                                                    \
    X(TTFT_SECONDS, "medley_time_to_first_token_seconds", SECONDS, "model",                        \
      "From a completion's headers to its first token.")                                           \
    X(TOKEN_SECONDS, "medley_inter_token_seconds", SECONDS, "model",                               \
      "Between two tokens of an answer.")                                                          \
    X(REQUEST_SECONDS, "medley_request_seconds", LONG_SECONDS, "model",                            \
      "From a completion's headers to its end.")                                                   \
    X(FORECAST_RATIO, "medley_decode_forecast_ratio", RATIO, "model",                              \
      "Tokens a second of a completion, by the forecast for one stream.")                          \
    X(PAUSES, "medley_request_pauses_total", COUNTER, "model",                                     \
      "Times without a driver: it was loading, or lost.")                                          \
    X(PAUSE_SECONDS, "medley_request_pause_seconds_total", COUNTER, "model", "Their length.")      \
    X(ENERGY, "medley_request_energy_joules_total", COUNTER, "model",                              \
      "What devices took for completions, where sensors tell.")                                    \
    X(ENERGY_TOKENS, "medley_request_energy_tokens_total", COUNTER, "model",                       \
      "Tokens generated for that energy.")                                                         \
    X(NODE_INFO, "medley_node_info", GAUGE, "id,name", "The node and its machine's name.")         \
    X(NODE_CPU, "medley_node_cpu_ratio", GAUGE, "", "Use of the machine's processors, 0 to 1.")    \
    X(NODE_MEMORY, "medley_node_memory_bytes", GAUGE, "", "The machine's memory.")                 \
    X(NODE_MEMORY_FREE, "medley_node_memory_available_bytes", GAUGE, "",                           \
      "Memory that programs could still get.")                                                     \
    X(NODE_PRESSURE, "medley_node_memory_pressure_ratio", GAUGE, "",                               \
      "Part of the last 10 s in which some task waited for memory.")                               \
    X(NODE_BATTERY, "medley_node_battery_ratio", GAUGE, "", "The battery's charge, 0 to 1.")       \
    X(NODE_ON_AC, "medley_node_on_ac", GAUGE, "", "1: it has mains power.")                        \
    X(NODE_SAMPLED, "medley_node_sampled_timestamp_seconds", GAUGE, "",                            \
      "When the machine's sensors were read last.")                                                \
    X(DEVICE_INFO, "medley_device_info", GAUGE,                                                    \
      "device,name,kind,backend,vendor,architecture,driver_name,driver",                           \
      "A device that the node offers.")                                                            \
    X(DEVICE_TEMPERATURE, "medley_device_temperature_celsius", GAUGE, "device",                    \
      "The hottest sensor that throttling goes by.")                                               \
    X(DEVICE_LIMIT, "medley_device_temperature_limit_celsius", GAUGE, "device",                    \
      "What the governor takes for the limit.")                                                    \
    X(DEVICE_PREDICTED, "medley_device_temperature_predicted_celsius", GAUGE, "device",            \
      "In 10 s at the present power.")                                                             \
    X(DEVICE_TO_LIMIT, "medley_device_limit_reached_seconds", GAUGE, "device",                     \
      "Until the stop line at the present power; +Inf: never.")                                    \
    X(DEVICE_USE, "medley_device_utilization_ratio", GAUGE, "device", "Its load, 0 to 1.")         \
    X(DEVICE_POWER, "medley_device_power_watts", GAUGE, "device", "What it takes.")                \
    X(DEVICE_CLOCK, "medley_device_clock_hertz", GAUGE, "device", "Its clock.")                    \
    X(DEVICE_MEMORY, "medley_device_memory_bytes", GAUGE, "device", "Its memory.")                 \
    X(DEVICE_MEMORY_FREE, "medley_device_memory_free_bytes", GAUGE, "device", "Of that, free.")    \
    X(DEVICE_MEMORY_STEP, "medley_device_memory_step", GAUGE, "device",                            \
      "How far its stages have gone down the ladder that is taken where memory is short; 0: as "   \
      "placed.")                                                                                   \
    X(DEVICE_DUTY, "medley_device_duty_ratio", GAUGE, "device",                                    \
      "Share of its time for which its governor lets it compute now.")                             \
    X(DEVICE_GOVERNOR, "medley_device_governor_state", GAUGE, "device,state",                      \
      "1 for what the governor does: free, lower precision, slowed or paused.")                    \
    X(DEVICE_BANDWIDTH, "medley_device_memory_bandwidth_bytes_per_second", GAUGE, "device",        \
      "Measured by calibration.")                                                                  \
    X(LINK_UP, "medley_link_up", GAUGE, "peer,peer_name", "1: there is a link to that node.")      \
    X(LINK_LATENCY, "medley_link_latency_seconds", GAUGE, "peer,peer_name",                        \
      "One way, as measured.")                                                                     \
    X(LINK_JITTER, "medley_link_jitter_seconds", GAUGE, "peer,peer_name", "How much it varies.")   \
    X(LINK_LOSS, "medley_link_loss_ratio", GAUGE, "peer,peer_name", "Lost packets, 0 to 1.")       \
    X(LINK_BANDWIDTH, "medley_link_bandwidth_bytes_per_second", GAUGE, "peer,peer_name",           \
      "Measured, towards that node.")                                                              \
    X(LINK_SENT, "medley_link_sent_bytes_total", COUNTER, "peer,peer_name",                        \
      "Bytes of frames sent since the link came up.")                                              \
    X(LINK_RECEIVED, "medley_link_received_bytes_total", COUNTER, "peer,peer_name",                \
      "Bytes of frames received since the link came up.")                                          \
    X(LINKS_LEFT_OUT, "medley_links_left_out", GAUGE, "", "Peers beyond those shown.")             \
    X(INSTANCE_READY, "medley_instance_ready", GAUGE, "model",                                     \
      "1: its driver is on this node, and serves.")                                                \
    X(INSTANCE_STAGES, "medley_instance_stages", GAUGE, "model", "Stages, on all nodes.")          \
    X(INSTANCE_NODES, "medley_instance_nodes", GAUGE, "model", "Nodes that they are on.")          \
    X(INSTANCE_DECODE, "medley_instance_forecast_decode_tokens_per_second", GAUGE, "model",        \
      "Forecast for all streams together.")                                                        \
    X(INSTANCE_PREFILL, "medley_instance_forecast_prefill_tokens_per_second", GAUGE, "model",      \
      "Forecast for one prompt.")                                                                  \
    X(INSTANCE_DECODE_ERROR, "medley_instance_forecast_error_decode", GAUGE, "model",              \
      "Tokens a second of its replies by the forecast, less 1: below 0 is slower.")                \
    X(INSTANCE_FIRST_ERROR, "medley_instance_forecast_error_first_token", GAUGE, "model",          \
      "Time to the first token by the forecast, less 1: above 0 is slower.")                       \
    X(STAGE_LAYERS, "medley_stage_layers", GAUGE, "model,device",                                  \
      "Layers of the model on this node's device.")                                                \
    X(SLOTS, "medley_slots", GAUGE, "model", "Sequences that can run at once.")                    \
    X(SLOTS_BUSY, "medley_slots_busy", GAUGE, "model", "Sequences that run.")                      \
    X(QUEUE_LENGTH, "medley_queue_length", GAUGE, "model", "Sequences that wait for a slot.")      \
    X(CELLS_USED, "medley_cells_used", GAUGE, "model",                                             \
      "KV cache cells in use, where sequences share them; one holds a token.")                     \
    X(CELLS_FREE, "medley_cells_free", GAUGE, "model", "Cells that nobody has.")                   \
    X(CELLS_SHARED, "medley_cells_shared", GAUGE, "model",                                         \
      "Of those in use, cells that several sequences have.")                                       \
    X(PARKED, "medley_slots_parked", GAUGE, "model", "Sequences that wait for cells.")             \
    X(PARKED_TOTAL, "medley_slots_parked_total", COUNTER, "model",                                 \
      "Times that a sequence gave its cells to others.")                                           \
    X(DRIVER_REQUESTS, "medley_driver_requests_total", COUNTER, "model",                           \
      "Sequences given to the driver.")                                                            \
    X(DRIVER_STEPS, "medley_driver_steps_total", COUNTER, "model", "Micro-batches run.")           \
    X(DRIVER_ROWS, "medley_driver_rows_total", COUNTER, "model", "Rows of those.")                 \
    X(DRAFTED, "medley_drafted_tokens_total", COUNTER, "model", "Tokens that were guessed.")       \
    X(ACCEPTED, "medley_accepted_tokens_total", COUNTER, "model", "Of those, right ones.")         \
    X(WEIGHTS_SENT, "medley_weights_sent_bytes_total", COUNTER, "",                                \
      "Bytes of models given to other nodes.")                                                     \
    X(WEIGHTS_RECEIVED, "medley_weights_received_bytes_total", COUNTER, "",                        \
      "Bytes of models fetched from other nodes.")                                                 \
    X(TERM, "medley_consensus_term", GAUGE, "", "The log's term, as this node knows it.")          \
    X(LEADS, "medley_consensus_leader", GAUGE, "", "1: this node leads.")                          \
    X(HAS_LEADER, "medley_consensus_has_leader", GAUGE, "", "1: this node knows of a leader.")     \
    X(COMMIT, "medley_consensus_commit_index", GAUGE, "", "The last entry that is agreed on.")     \
    X(COMMIT_LAG, "medley_consensus_commit_lag_entries", GAUGE, "",                                \
      "Entries of this node's log that are not agreed on yet.")                                    \
    X(ELECTIONS, "medley_consensus_elections_total", COUNTER, "",                                  \
      "Terms that began since this node did, as it heard of them.")                                \
    X(CLUSTER_NODES, "medley_cluster_nodes", GAUGE, "state",                                       \
      "Members, by whether the leader hears them: up or down.")                                    \
    X(CLUSTER_VOTERS, "medley_cluster_voters", GAUGE, "", "Members that vote.")                    \
    X(ALERTS, "medley_alerts", GAUGE, "kind,severity", "Alerts that are raised.")                  \
    X(TRACES, "medley_traces_total", COUNTER, "outcome",                                           \
      "Requests whose spans were sent, dropped or given_up.")                                      \
    X(TRACES_QUEUED, "medley_traces_queued", GAUGE, "",                                            \
      "Requests whose spans wait for the collector.")
