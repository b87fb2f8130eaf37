/* A runner: stages of a model for a driver on another machine, or in another process.
 *
 * It holds one machine's stages of an instance, or those in one lane. Micro-batches come as
 * messages (wire.h), go through the stages that are here, and on to the next machine or back to the
 * driver. For stages in lanes it only passes messages on. It keeps no sequences: what a slot holds,
 * and when it is cut, the driver says with each micro-batch.
 *
 * A message that cannot be right is refused with its reason, and nothing has changed; the
 * connection that it came over should end. A stage that fails tells the driver through the shares
 * (microbatch.h).
 *
 * Threading: runner_receive() and runner_close() from one thread; far.send is called on the
 * devices' threads. */
#pragma once

#include "pipeline/pipeline.h"

struct runner;

/* `stages`: all of the pipeline; at least one is here, on a device or in a lane. `options`: the
 * driver's, whole (driver_options()). `far` sends. The model must outlive the runner, and so must
 * what `far` points to. */
enum error_code runner_open(const struct model *model, const struct stage_plan *stages,
                            uint32_t n_stages, const struct driver_options *options,
                            const struct far *far, struct runner **out, struct error *err);

/* From now on the runner minds the memory of its devices (memory_ladder.h): what is short of it is
 * computed in smaller parts, and by stages of a smaller form (pipeline_form.h). A change of form
 * loses what the slots held; the driver computes it again, as after runner_forget(). While there is
 * a smaller form, a micro-batch without memory is dropped and comes again, and no request counts
 * it. `told` says each step, and when a form begins and ends to change. Once, before the first
 * message; then runner_mind() is to be called before each message and once a second. */
void runner_watch(struct runner *runner, void (*told)(void *arg, const struct memory_step *step),
                  void *arg);
/* On the thread of runner_receive(). Looks, and where the form has to change waits for what is
 * under way and loads the stages, which may take long. */
void runner_mind(struct runner *runner);
/* Whether the stages are as they were placed: only then do their caches have the rows that others
 * expect. The same thread. */
bool runner_is_as_placed(const struct runner *runner);

/* Before the first message: the driver believes that something is in the slots, which is gone. Rows
 * are dropped (and computed anew by the driver, microbatch.h) until it has emptied their slot. */
void runner_forget(struct runner *runner);

/* Waits for the micro-batches that are under way here, then gives the memory back. NULL is fine. */
void runner_close(struct runner *runner);

/* The bytes begin at a multiple of 8 and are not needed any more afterwards. ERROR_INVALID:
 * refused. ERROR_BUSY: more micro-batches than the driver may have under way, or than a lane takes;
 * it is lost. */
enum error_code runner_receive(struct runner *runner, const void *bytes, size_t size,
                               struct error *err);

/* The driver wants this micro-batch no more, which is here, or comes yet: it ends at the next safe
 * point (microbatch.h). One that is not heard of again does no harm. The thread of
 * runner_receive(). */
void runner_halt(struct runner *runner, uint64_t number);

struct pipeline *
runner_pipeline(struct runner *runner); /* pipeline.h; its stages are their devices' threads' */
const struct stage *runner_stage(const struct runner *runner, uint32_t index); /* NULL: elsewhere */
