/* Devices in processes of their own, one each: what an abort in a driver, a crash, a hang or the kernel's want of
 * memory takes away is then a device for a moment, and not the node.
 *
 * A child is this program, started anew with a private first argument; its main() begins with child_main(), which
 * sees that argument and never returns. It opens one device and holds *lanes*: the stages that one pipeline has on
 * that device, in a runner (runner.h). Micro-batches go through a pair of rings in shared memory (ring.h) as wire.h's
 * messages; what belongs to the process, over a socket (child_words.h). It has no other descriptor than these,
 * /dev/null and standard error, a process group of its own, and dies with its parent.
 *
 * Each device has one thread here that watches its child: starts it with the first lane, ends it with the last, asks
 * it four times a second whether it is there (its main thread answers while the device computes), and minds how long
 * loading and the micro-batches under way take. A child that has died, hangs, or writes what cannot be is killed and
 * started again after a pause that doubles; its lanes are loaded again, and what their slots held is lost. After
 * LIMIT_CHILD_DEATHS in LIMIT_CHILD_DEATHS_MS its lanes have failed.
 *
 * The child keeps its device's duty as device_set_duty() says it here, and the device here tells what the child's reads
 * (device_mirror()).
 *
 * Threading: any thread, but one at a time for each lane's open and close, which block. `receive` is called on a
 * lane's own thread, `changed` on the device's watching thread or that; neither may block or close a lane. */
#pragma once

#include "pipeline/child_words.h"
#include "pipeline/wire.h"

#include <sys/types.h>

struct lane;
struct children;

struct children_options {
    struct gpu *gpu;                           /* the same devices, for their duty and readings; NULL: full duty */
    const char *program;                       /* NULL: "/proc/self/exe" */
    const char *backend, *sim_file, *registry; /* as in gpu_options; texts are copied */
    uint32_t n_cpu_threads;
    /* For tests; 0: the limits of limits.h */
    uint32_t start_ms, silence_ms, load_ms, work_ms, pause_ms;
    uint32_t row_ms;  /* what a row of a micro-batch may take before any has come back */
    uint64_t spin_ns; /* how long a lane's thread looks for an answer before it sleeps */
};

enum error_code children_open(const struct children_options *options, struct children **out, struct error *err);
void children_close(struct children *children); /* when all lanes are closed. NULL is fine */

struct lane_options {
    const char *device; /* its id */
    const char *path;   /* the model's file */
    uint64_t instance, epoch;
    const struct driver_options *options;
    enum activation_type type;        /* of messages to the driver: as far.type */
    const struct child_stage *stages; /* all of the pipeline; `here`: on this device */
    uint32_t n_stages;
    const struct wire_shape *shape;
    /* A message on its way to stage `at`, or to the driver (at == n_stages). It may be taken by leaving another buffer.
     * All but ERROR_NONE: it is wrong, and so is the child. */
    enum error_code (*receive)(void *arg, uint32_t at, struct buffer *message, struct error *err);
    void (*changed)(void *arg); /* ask lane_take_loss() and lane_look() */
    void *arg;
};

/* Waits until the stages are loaded. Fails as runner_open() does, or when the child dies again and again. */
enum error_code lane_open(struct children *children, const struct lane_options *options, struct lane **out,
                          struct error *err);
void lane_close(struct lane *lane);

/* To the stages there. What cannot be sent is lost, and that is said. */
void lane_send(struct lane *lane, const void *bytes, size_t size);

/* Whether messages, and what the slots held, were lost since this was last asked. */
bool lane_take_loss(struct lane *lane, struct error *why);

enum lane_look { LANE_LOADED, LANE_RELOADING, LANE_GIVEN_UP };
enum lane_look lane_look(struct lane *lane, struct error *why); /* `why`: unless it is loaded */
uint64_t lane_stage_bytes(struct lane *lane, uint32_t stage);

pid_t children_pid(struct children *children, const char *device); /* for tests; 0: none */

/* For the first line of a main(): when this process was started as a child, is that and never returns. */
void child_main(int argc, char **argv);
