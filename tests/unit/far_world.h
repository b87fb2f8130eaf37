/* The toy machine spread over several: a driver on machine 0, runners on the others, and a network
 * of one thread between them that carries the messages in order. */
#pragma once

#include "driver_world.h"
#include "pipeline/far.h"
#include "pipeline/runner.h"

enum { FAR_MACHINES = 4 };

struct far_machine {
    struct memory_step step; /* as told last */
    uint32_t n_told, n_changes;
};

struct far_world {
    struct world world; /* for client_submit(); its devices are the machines' */
    struct far far;
    uint32_t n_machines;
    uint32_t n_stages;
    uint32_t machine_of[FAKE_LAYERS];
    struct runner *runners[FAR_MACHINES];
    bool minds_memory;                         /* runner_watch(); set by far_world_mind_memory() */
    struct far_machine machines[FAR_MACHINES]; /* the network's thread's */
    struct far_network *network;
};

/* `machines`: a digit for each stage, the machine that has it: "012", "1", "010". */
void far_world_open(struct far_world *far, const char *machines, enum activation_type type,
                    const struct driver_options *options);
/* In the worlds that are opened next runners mind their memory, with this device to fall back to;
 * NULL: they do not. */
void far_world_mind_memory(struct device *fallback);
/* What a runner has told last, on any thread. */
struct far_machine far_world_machine(struct far_world *far, uint32_t machine);
void far_world_cut(
    struct far_world *far); /* messages are lost from now on, and the driver is told */
void far_world_mend(struct far_world *far); /* they arrive again, and the driver is told */
void far_world_close(struct far_world *far);

struct far_traffic {
    uint64_t n_messages, bytes;
};
struct far_traffic far_world_traffic(struct far_world *far);
