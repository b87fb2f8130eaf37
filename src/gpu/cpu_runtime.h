/* Settings of the threading library (libgomp) with which the CPU backend computes.
 *
 * libgomp reads its environment once, when it is loaded. Debian links libggml-base itself
 * with it, so that this happens before main(): there a process only gets the settings by
 * being started with them, which cpu_runtime_restart() does (8 ms for the second start).
 * What the user has set (GOMP_SPINCOUNT, OMP_WAIT_POLICY) is never overridden. */
#pragma once

#include <stdint.h>

/* Sets the environment: for a libgomp that comes with the CPU plugin, and for child
 * processes. Call before any plugin is loaded and while the process has one thread. */
void cpu_runtime_prepare(void);

/* How many turns a thread spins before it sleeps, by these settings. */
uint32_t cpu_runtime_spins(void);

/* For the first line of a main(): starts the program anew with the settings. Returns when
 * they are there already, or when it cannot be started anew. */
void cpu_runtime_restart(char **argv);
