/* Handles: opening, attaching, closing, and the way from a device's thread to the loop. */
#include "public/context.h"

#include "base/mem.h"
#include "gpu/cpu_runtime.h"
#include "public/describe.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static void finish_if_drained(struct medley_gpu *gpu);

/* ---- completions ----------------------------------------------------------------------- */

void context_hold(struct medley_gpu *gpu)
{
    if (gpu->n_in_flight++ == 0)
        uv_ref((uv_handle_t *)&gpu->wake);
}

void context_deliver(struct medley_gpu *gpu, struct call *call)
{
    assert(gpu->n_in_flight > 0);
    if (call->device)
        call->device->n_in_flight--;
    if (--gpu->n_in_flight == 0)
        uv_unref((uv_handle_t *)&gpu->wake);
    atomic_store(&call->phase, CALL_IDLE);
    gpu->in_callback = true;
    if (call->callback)
        call->callback(call->request); /* may free the request, and `call` with it */
    gpu->in_callback = false;
}

void context_complete(struct medley_gpu *gpu, struct call *call)
{
    call->next_done = NULL;
    uv_mutex_lock(&gpu->done_lock);
    if (gpu->done_first) {
        gpu->done_last->next_done = call;
    } else {
        gpu->done_first = call;
        uv_async_send(&gpu->wake); /* one wake-up for all that complete before the loop looks */
    }
    gpu->done_last = call;
    uv_mutex_unlock(&gpu->done_lock);
}

static void gpu_context_on_wake(uv_async_t *wake)
{
    struct medley_gpu *gpu = wake->data;
    uv_mutex_lock(&gpu->done_lock);
    struct call *call = gpu->done_first;
    gpu->done_first = gpu->done_last = NULL;
    uv_mutex_unlock(&gpu->done_lock);
    while (call) {
        struct call *next = call->next_done;
        context_deliver(gpu, call);
        call = next;
    }
    finish_if_drained(gpu);
}

/* ---- making a handle ------------------------------------------------------------------- */

static enum medley_error_code gpu_context_fail(struct medley_error *err,
                                               enum medley_error_code code, const char *text,
                                               int uv_failure)
{
    err->code = code;
    snprintf(err->text, sizeof err->text, "%s%s%s", text, uv_failure ? ": " : "",
             uv_failure ? uv_strerror(uv_failure) : "");
    return code;
}

static enum medley_error_code context_new(uv_loop_t *loop, struct medley_gpu **out,
                                          struct medley_error *err)
{
    struct medley_gpu *gpu = mem_new(sizeof *gpu);
    if (!gpu)
        return gpu_context_fail(err, MEDLEY_ERROR_NO_MEMORY, "out of memory", 0);
    int failure = loop ? 0 : uv_loop_init(&gpu->hidden_loop);
    if (failure) {
        mem_free(gpu);
        return gpu_context_fail(err, MEDLEY_ERROR_IO, "no event loop", failure);
    }
    gpu->loop = loop ? loop : &gpu->hidden_loop;
    failure = uv_mutex_init(&gpu->done_lock);
    if (failure)
        goto no_mutex;
    failure = uv_async_init(gpu->loop, &gpu->wake, gpu_context_on_wake);
    if (failure)
        goto no_async;
    gpu->wake.data = gpu;
    uv_unref((uv_handle_t *)&gpu->wake);
    *out = gpu;
    return MEDLEY_ERROR_NONE;
no_async:
    uv_mutex_destroy(&gpu->done_lock);
no_mutex:
    if (!loop)
        uv_loop_close(&gpu->hidden_loop);
    mem_free(gpu);
    return gpu_context_fail(err, MEDLEY_ERROR_IO, "no way to wake the event loop", failure);
}

static void take_machine(struct medley_gpu *gpu, struct machine *machine)
{
    gpu->machine = machine;
    gpu->n_devices = machine->n_devices;
    for (uint32_t i = 0; i < machine->n_devices; i++) {
        struct machine_device *device = &machine->devices[i];
        gpu->devices[i] =
            (struct medley_device){.gpu = gpu, .device = device->device, .info = &device->info};
    }
}

/* ---- opening --------------------------------------------------------------------------- */

/* On a thread of libuv's pool; the handle's machine and the request's error are this thread's until
 * it is done. */
static void gpu_context_open_work(uv_work_t *work)
{
    struct medley_gpu *gpu = work->data;
    struct error err;
    uint64_t start_ns = uv_hrtime();
    enum error_code code = machine_open(&gpu->options, &gpu->machine, &err);
    gpu->opening->request->run_ns = uv_hrtime() - start_ns;
    public_error(code, &err, &gpu->opening->request->error);
}

static void open_done(uv_work_t *work, int status)
{
    struct medley_gpu *gpu = work->data;
    struct call *call = gpu->opening;
    gpu->opening = NULL;
    if (status)
        gpu_context_fail(&call->request->error, MEDLEY_ERROR_CANCELLED,
                         "cancelled before it started", 0);
    else if (gpu->machine)
        take_machine(gpu, gpu->machine);
    context_deliver(gpu, call);
    finish_if_drained(gpu);
}

/* Copies one text of the options; *out stays NULL where it is not given. */
static enum medley_error_code gpu_context_copy_text(const char *text, char *copy, size_t size,
                                                    const char **out, const char *name,
                                                    struct medley_error *err)
{
    if (!text)
        return MEDLEY_ERROR_NONE;
    if (strlen(text) >= size)
        return gpu_context_fail(err, MEDLEY_ERROR_INVALID, name, 0);
    memcpy(copy, text, strlen(text) + 1);
    *out = copy;
    return MEDLEY_ERROR_NONE;
}

static enum medley_error_code copy_options(struct medley_gpu *gpu,
                                           const struct medley_gpu_options *options,
                                           struct medley_error *err)
{
    if (!options)
        return MEDLEY_ERROR_NONE;
    gpu->options = (struct gpu_options){.n_cpu_threads = options->n_cpu_threads,
                                        .skip_other = options->cpu_only};
    enum medley_error_code code =
        gpu_context_copy_text(options->backend, gpu->backend, sizeof gpu->backend,
                              &gpu->options.backend, "no backend has so long a name", err);
    if (!code)
        code =
            gpu_context_copy_text(options->registry, gpu->registry, sizeof gpu->registry,
                                  &gpu->options.registry, "the registry's path is too long", err);
    if (!code)
        code = gpu_context_copy_text(options->sim_file, gpu->sim_file, sizeof gpu->sim_file,
                                     &gpu->options.sim_file,
                                     "the path of the simulated devices is too long", err);
    if (!code)
        code = gpu_context_copy_text(options->verifier, gpu->verifier, sizeof gpu->verifier,
                                     &gpu->options.prober, "the verifier's path is too long", err);
    return code;
}

enum medley_error_code medley_gpu_open(uv_loop_t *loop, const struct medley_gpu_options *options,
                                       struct medley_gpu **out,
                                       struct medley_device_request *request,
                                       medley_device_callback callback)
{
    *out = NULL;
    if (!request || call_in_flight(request))
        return MEDLEY_ERROR_INVALID;
    call_clear_results(request);
    struct medley_gpu *gpu;
    enum medley_error_code code = context_new(loop, &gpu, &request->error);
    if (code)
        return code;
    code = copy_options(gpu, options, &request->error);
    if (code) {
        medley_gpu_close(gpu, NULL, NULL);
        return code;
    }
    cpu_runtime_prepare(); /* here, not on the pool's thread: it sets an environment variable */
    struct call *call = call_of(request);
    *call = (struct call){.request = request, .gpu = gpu, .callback = callback};
    atomic_store(&call->phase, CALL_RUNNING);
    gpu->opening = call;
    gpu->work.data = gpu;
    context_hold(gpu);
    int failure = uv_queue_work(gpu->loop, &gpu->work, gpu_context_open_work, open_done);
    assert(failure == 0); /* it fails only without a function */
    *out = gpu;
    return MEDLEY_ERROR_NONE;
}

enum medley_error_code medley_gpu_attach(uv_loop_t *loop, struct medley_gpu *other,
                                         struct medley_gpu **out, struct medley_error *err)
{
    struct medley_error unseen;
    err = err ? err : &unseen;
    *out = NULL;
    if (!other || !other->machine)
        return gpu_context_fail(err, MEDLEY_ERROR_INVALID, "the devices have not been opened", 0);
    struct medley_gpu *gpu;
    enum medley_error_code code = context_new(loop, &gpu, err);
    if (code)
        return code;
    machine_retain(other->machine);
    take_machine(gpu, other->machine);
    gpu->work.data = gpu;
    *out = gpu;
    return MEDLEY_ERROR_NONE;
}

/* ---- closing --------------------------------------------------------------------------- */

static void gpu_context_on_closed(uv_handle_t *wake)
{
    struct medley_gpu *gpu = wake->data;
    gpu->closed = true;
    if (context_is_hidden(gpu))
        return; /* medley_gpu_close() goes on */
    uv_mutex_destroy(&gpu->done_lock);
    medley_gpu_close_callback callback = gpu->close_callback;
    void *data = gpu->close_data;
    mem_free(gpu);
    if (callback)
        callback(data);
}

static void gpu_context_close_work(uv_work_t *work)
{
    machine_close(((struct medley_gpu *)work->data)->machine);
}

static void close_done(uv_work_t *work, int status)
{
    (void)status;
    uv_close((uv_handle_t *)&((struct medley_gpu *)work->data)->wake, gpu_context_on_closed);
}

static void finish_if_drained(struct medley_gpu *gpu)
{
    if (!gpu->closing || gpu->n_in_flight || gpu->released)
        return;
    gpu->released = true;
    if (gpu->machine && machine_release(gpu->machine)) {
        int failure = uv_queue_work(gpu->loop, &gpu->work, gpu_context_close_work, close_done);
        assert(failure == 0);
        return;
    }
    uv_close((uv_handle_t *)&gpu->wake, gpu_context_on_closed);
}

void medley_gpu_close(struct medley_gpu *gpu, medley_gpu_close_callback callback, void *data)
{
    if (!gpu)
        return;
    assert(!gpu->closing && "a handle closes once");
    gpu->closing = true;
    gpu->close_callback = callback;
    gpu->close_data = data;
    if (gpu->n_devices)
        machine_leave(gpu->machine);
    bool in_callback = gpu->in_callback;
    if (!in_callback) /* else whoever called back looks */
        finish_if_drained(gpu);
    if (!context_is_hidden(gpu))
        return;
    assert(!in_callback && "a handle without a loop is not closed from a callback");
    while (!gpu->closed)
        uv_run(gpu->loop, UV_RUN_ONCE);
    int failure = uv_loop_close(&gpu->hidden_loop);
    assert(failure == 0);
    uv_mutex_destroy(&gpu->done_lock);
    mem_free(gpu);
    if (callback)
        callback(data);
}

enum medley_error_code medley_device_wait(struct medley_device_request *request)
{
    if (!request)
        return MEDLEY_ERROR_INVALID;
    struct call *call = call_of(request);
    struct medley_gpu *gpu = call->gpu; /* gone perhaps, but then the request is not in flight */
    if (call_in_flight(request) && (!context_is_hidden(gpu) || gpu->in_callback))
        return MEDLEY_ERROR_INVALID;
    while (call_in_flight(request))
        uv_run(gpu->loop, UV_RUN_ONCE);
    return request->error.code;
}

/* ---- looking --------------------------------------------------------------------------- */

uint32_t medley_gpu_device_count(const struct medley_gpu *gpu)
{
    return gpu ? gpu->n_devices : 0;
}

struct medley_device *medley_gpu_device(struct medley_gpu *gpu, uint32_t index)
{
    return index < medley_gpu_device_count(gpu) ? &gpu->devices[index] : NULL;
}

struct medley_device *medley_gpu_find(struct medley_gpu *gpu, const char *id)
{
    for (uint32_t i = 0; id && i < medley_gpu_device_count(gpu); i++) {
        if (strcmp(gpu->devices[i].info->id, id) == 0)
            return &gpu->devices[i];
    }
    return NULL;
}

const struct medley_device_info *medley_device_info(const struct medley_device *device)
{
    return device ? device->info : NULL;
}

uint32_t medley_gpu_rejected_count(const struct medley_gpu *gpu)
{
    return gpu && gpu->n_devices ? gpu->machine->n_rejected : 0;
}

const struct medley_device_info *medley_gpu_rejected(const struct medley_gpu *gpu, uint32_t index,
                                                     const char **reason)
{
    if (index >= medley_gpu_rejected_count(gpu))
        return NULL;
    const struct machine_device *rejected = &gpu->machine->rejected[index];
    *reason = rejected->reason;
    return &rejected->info;
}
