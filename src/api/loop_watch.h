/* How long each turn of the node's loop keeps its processor: all that runs there between two waits,
 * TLS handshakes and links included. Processor time, so that a busy machine is not taken for a
 * busy loop. On the loop's thread. */
#pragma once

struct loop_watch;
struct metrics;

/* NULL: no memory; then nothing is watched. `metrics` outlives it. */
struct loop_watch *loop_watch_open(void *uv_loop, struct metrics *metrics);
/* Frees it in the loop's next turn. NULL is fine. */
void loop_watch_close(struct loop_watch *watch);
