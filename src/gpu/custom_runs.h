/* Runs of custom operations, which ggml computes as one each.
 *
 * ggml's threads meet behind every operation, at a barrier of libgomp's whose last thread makes a
 * system call to wake the others, asleep or not: 1.6 microseconds where a spinning barrier takes
 * 0.2, and a token of a small model has hundreds. In a run they meet only where an operation needs
 * what one since the last meeting has made, or overwrites what one has read or made; there they
 * spin, as long as libgomp would (cpu_runtime.h), before they sleep. What is computed, by which
 * thread and in which order an operation adds up, stays the same.
 *
 * Not for many rows: a run is computed to its end when a batch is to stop. */
#pragma once

#include <ggml.h>

struct custom_runs;

/* Changes a graph that has its memory and that CPU threads alone compute, all of it: custom
 * operations that follow each other, and additions of equal shapes among them, become one.
 * NULL: there are none, or no memory; the graph is as it was. */
struct custom_runs *custom_runs_make(struct ggml_cgraph *graph);
/* Once nobody computes the graph any more. NULL is fine. */
void custom_runs_free(struct custom_runs *runs);
