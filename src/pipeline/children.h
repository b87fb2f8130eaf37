/* Devices in processes of their own, one each: what an abort in a driver, a crash, a hang or the
 * kernel's want of memory takes away is then a device for a moment, and not the node.
 *
 * A child is this program, started anew with a private first argument; its main() begins with
 * child_main(), which sees that argument and never returns. It opens one device and holds *lanes*:
 * the stages that one pipeline has on that device, in a runner (runner.h). Micro-batches go through
 * a pair of rings in shared memory (ring.h) as wire.h's messages; what belongs to the process, over
 * a socket (child_words.h). It has no other descriptor than these, its models' files, /dev/null and
 * standard error, a process group of its own, and dies with its parent. Before it opens the device
 * it enters a sandbox (sandbox/sandbox.h), with a clean environment: it reads drivers, libraries
 * and the models that it is handed, and nothing else of this machine.
 *
 * Each device has one thread here that watches its child: starts it with the first lane, ends it
 * with the last, asks it four times a second whether it is there (its main thread answers while the
 * device computes), and minds how long loading and the micro-batches under way take. A child that
 * has died, hangs, or writes what cannot be is killed and started again after a pause that doubles;
 * its lanes are loaded again, and what their slots held is lost. After LIMIT_CHILD_DEATHS in
 * LIMIT_CHILD_DEATHS_MS, or as many in a row before a lane is loaded, its lanes have failed; after
 * fewer where it hangs, which takes long to notice.
 *
 * The child minds its memory (runner_watch()), and tells each step. While the stages of a lane
 * change their form, nothing is expected of its device but that this ends in the time of loading.
 *
 * The child keeps its device's duty as device_set_duty() says it here, and the device here tells
 * what the child's reads (device_mirror()).
 *
 * Threading: any thread, but one at a time for each lane's open and close, which block. `receive`
 * is called on a lane's own thread, `changed` on the device's watching thread or that; neither may
 * block or close a lane. */
#pragma once

#include "pipeline/cache_wire.h"
#include "pipeline/child_words.h"
#include "pipeline/pipeline.h"

#include <sys/types.h>

struct children;
struct lane;
struct model;

struct children_options {
    struct gpu *gpu;     /* the same devices, for their duty and readings; NULL: full duty */
    const char *program; /* NULL: this_program() */
    const char *backend, *sim_file, *registry; /* as in gpu_options; texts are copied */
    const char *folder; /* where drivers may keep compiled shaders; NULL: nowhere */
    bool no_sandbox;    /* for a driver that needs more than sandbox/sandbox.h leaves */
    uint32_t n_cpu_threads;
    /* For tests; 0: the limits of limits.h */
    uint32_t start_ms, silence_ms, load_ms, work_ms, pause_ms;
    uint32_t row_ms;  /* what a row of a micro-batch may take before any has come back */
    uint64_t spin_ns; /* how long a lane's thread looks for an answer before it sleeps */
};

enum error_code children_open(const struct children_options *options, struct children **out,
                              struct error *err);
void children_close(struct children *children); /* when all lanes are closed. NULL is fine */

/* For a stage's plan that names a lane (far.h). */
extern const struct pipeline_impl pipeline_in_lane;

struct lane_options {
    const char *device; /* its id */
    /* Is open until the lane is closed. The process opens its file; lanes of the same model share
     * their weights there (engine/weight_unit.h). */
    const struct model *model;
    uint64_t instance, epoch;
    const struct driver_options *options;
    enum activation_type type;        /* of messages to the driver: as far.type */
    const struct child_stage *stages; /* all of the pipeline; `here`: on this device */
    uint32_t n_stages;
    const struct wire_shape *shape;
    /* A message of this pipeline, on its way to a stage that is not in the lane and follows one
     * that is, or to the driver. It may be taken (`own`). All but ERROR_NONE: it is wrong, and so
     * is the child. */
    enum error_code (*receive)(void *arg, const struct microbatch_message *message,
                               struct error *err);
    void *arg;
    void (*changed)(void *arg); /* ask lane_take_loss() and lane_look() */
    void *changed_arg;
    const _Atomic bool *
        unwanted; /* optional: once it is set lane_open() gives up, and ends with ERROR_CANCELLED */
};

/* Waits until the stages are loaded. Fails as runner_open() does, or when the child dies again and
 * again. */
enum error_code lane_open(struct children *children, const struct lane_options *options,
                          struct lane **out, struct error *err);
/* Its process closes the stages. Once this has returned `receive` is not called any more, and what
 * is sent is lost; all else may still be asked. Optional before lane_close(), for
 * lanes that send to each other. */
void lane_disconnect(struct lane *lane);
void lane_close(struct lane *lane); /* NULL is fine */

/* To the stages there; does not wait. What cannot be sent (ERROR_BUSY) is lost, and that is said.
 * ERROR_INVALID: it is no message, or longer than any. */
enum error_code lane_send(struct lane *lane, const void *bytes, size_t size);
/* runner_halt() in the child, behind what was sent before. Any thread. */
void lane_halt(struct lane *lane, uint64_t number);

/* Whether messages, and what the slots held, were lost since this was last asked. Not what a change
 * of form takes: the process answers for that with rows that are dropped, and come again. */
bool lane_take_loss(struct lane *lane, struct error *why);

enum pipeline_look lane_look(struct lane *lane, struct error *why); /* `why`: unless it is loaded */
uint64_t lane_stage_bytes(struct lane *lane, uint32_t stage);
/* How far its process has gone down its ladder (memory_ladder.h). `changed` is raised for it. */
struct memory_step lane_memory_step(struct lane *lane);

/* ---- weights that stay ---- */

/* Of layers that it has loaded, in its process, for the next lane of the same model there, when
 * this one is closed; while the model is open. A process that ends takes them along. NULL: no
 * memory. Any thread. */
struct lane_pin *lane_pin(struct lane *lane, const struct child_range *ranges, uint32_t n);
void lane_unpin(struct lane_pin *pin); /* NULL is fine */

/* ---- what is in the caches ---- */

/* Something that a lane's process is to do with a cache, behind the micro-batches that were sent
 * before. In the caller's memory until `done`, which is called once, on a lane's or a watching
 * thread, or at once where the process is not there; it must not block. `why` NULL: it was done;
 * `rows`: of a READ, as many bytes as were to come. What a process that died had under way was not
 * done. */
struct lane_job {
    void (*done)(void *arg, const void *rows, size_t size, const struct error *why);
    void *arg;
    /* the lane's */
    struct lane_job *next;
    uint64_t number;
    size_t n_bytes; /* that are to come back */
};
uint64_t lane_row_bytes(struct lane *lane, uint32_t stage); /* stage_kv_row_bytes() */
void lane_read(struct lane *lane, struct lane_job *job, uint32_t stage, const struct kv_run *run);
/* `message`: ROWS of cache_wire.h. */
void lane_write(struct lane *lane, struct lane_job *job, uint32_t stage,
                const struct buffer *message);
/* `message`: an OFFER. Lengths and tokens of its slots, at once. */
void lane_settle(struct lane *lane, struct lane_job *job, uint32_t stage,
                 const struct buffer *message);

/* ---- how fast a device is ---- */

/* `found` NULL: it was not measured, and `why`; ERROR_CANCELLED: other work came first. On the
 * device's watching thread; must neither block nor ask anything of `children`. */
typedef void (*children_measured)(void *arg, const char *device,
                                  const struct device_calibration *found, const struct error *why);

/* Measures the device in its process, which is started for it if it does not run. `done` comes
 * once, unless children_measure_forget() is first. Stops by itself, within a run of some ten
 * milliseconds, when a lane is opened or a micro-batch goes to any of the devices. ERROR_BUSY: it
 * is being measured already. Any thread. */
enum error_code children_measure(struct children *children, const char *device, uint32_t budget_ms,
                                 children_measured done, void *arg, struct error *err);
void children_measure_stop(struct children *children); /* all of them. Any thread */
/* Stops, too; once this has returned no `done` is called. Any thread. */
void children_measure_forget(struct children *children);
/* Whether any device computes, loads or gives back. Any thread. */
bool children_are_busy(struct children *children);

/* How often the device's process has died within the last `ms`: at most LIMIT_CHILD_DEATHS. Any
 * thread. */
uint32_t children_deaths(struct children *children, const char *device, uint64_t ms);
/* Why it died last, where that was within the last `ms`. False: it did not. Any thread. */
bool children_last_death(struct children *children, const char *device, uint64_t ms,
                         struct error *why);
pid_t children_pid(struct children *children, const char *device); /* for tests; 0: none */

/* For the first line of a main(): when this process was started as a child, is that and never
 * returns. */
void child_main(int argc, char **argv);
