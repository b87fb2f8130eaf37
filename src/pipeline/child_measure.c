/* The measuring of a device in its process: a thread that waits for the steps of one calibration,
 * and is told to stop as soon as there is other work. */
#include "pipeline/child_room.h"

#include "base/mem.h"
#include "gpu/calibrate.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

static struct {
    struct device *device;
    uint32_t budget_ms;
    pthread_t thread;
    bool has_thread; /* the main thread's */
    _Atomic bool runs, stop;
} measuring;

static void *child_measure_run(void *unused)
{
    (void)unused;
    struct error err = {0};
    const struct calibration_options options = {.budget_ms = measuring.budget_ms,
                                                .stop = &measuring.stop};
    struct child_word *word = mem_new(sizeof *word);
    if (!word) {
        error_set(&err, ERROR_NO_MEMORY, "not enough memory to measure the device");
        child_leave(&err);
    }
    word->kind = CHILD_MEASURED;
    const enum error_code code =
        calibrate_device(measuring.device, &options, &word->calibration, &err);
    if (device_is_lost(measuring.device))
        child_leave(&err); /* what hangs serves nobody; the node begins anew */
    child_set_outcome(word, code, &err);
    atomic_store(&measuring.runs, false);
    child_tell_readings(measuring.device);
    child_tell(word);
    mem_free(word);
    return NULL;
}

void child_measure_begin(struct device *device, const struct child_word *word)
{
    struct error err = {0};
    assert(device && word->kind == CHILD_MEASURE);
    if (atomic_load(&measuring.runs))
        return; /* its answer is still to come */
    if (measuring.has_thread)
        pthread_join(measuring.thread, NULL);
    measuring.device = device;
    measuring.budget_ms = word->budget_ms;
    atomic_store(&measuring.stop, false);
    atomic_store(&measuring.runs, true);
    measuring.has_thread = pthread_create(&measuring.thread, NULL, child_measure_run, NULL) == 0;
    if (!measuring.has_thread) {
        error_set(&err, ERROR_NO_MEMORY, "no thread to measure the device with");
        child_leave(&err);
    }
}

void child_measure_stop(void)
{
    atomic_store(&measuring.stop, true);
}
