/* The memory of one template interpreter: bounded, and freed as a whole.
 *
 * QuickJS asserts at its own clean-up that nothing leaked, and after a refused allocation it may
 * have leaked. So its clean-up is never run: every block is in one list, and script_heap_deinit()
 * frees them all. The blocks come from malloc, not from base/mem.h: what fails here is the
 * template's memory limit, tested with templates that reach it.
 *
 * What it takes is charged to the work at hand (base/work_limit.h) as well.
 *
 * Requests of LARGE bytes or more also fail after the deadline, because QuickJS asks the clock
 * between its instructions only, and one instruction may copy much. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct JSMallocFunctions;

struct script_block;
struct script_heap { /* a zeroed heap is empty, and refuses everything */
    struct script_block *blocks;
    size_t used, limit;   /* bytes, with this module's own headers */
    uint64_t deadline_ns; /* on script_clock_ns() */
    bool out_of_memory;   /* a request was refused for the limit, or the system had none */
    bool out_of_time;     /* a request was refused for the deadline */
};

/* The processor time of this thread: a busy machine must not make a good template late. */
uint64_t script_clock_ns(void);

/* For JS_NewRuntime2(), whose `opaque` is the struct script_heap. */
const struct JSMallocFunctions *script_heap_functions(void);

void script_heap_deinit(struct script_heap *heap);
