/* Requests: submitting, running on the device's thread, cancelling. */
#include "public/call.h"

#include "base/clock.h"
#include "base/limits.h"
#include "public/context.h"
#include "public/describe.h"

#include <assert.h>
#include <stdio.h>

_Static_assert(sizeof(struct call) <= sizeof((struct medley_device_request){0}.reserved),
               "it lies in there");
_Static_assert(_Alignof(struct call) <= _Alignof(uint64_t), "and aligned");
_Static_assert((int)LIMIT_DEVICE_REQUESTS == (int)MEDLEY_DEVICE_REQUESTS_MAX, "one limit");

struct call *call_of(struct medley_device_request *request)
{
    return (struct call *)(void *)request->reserved;
}

bool call_in_flight(struct medley_device_request *request)
{
    return atomic_load(&call_of(request)->phase) != CALL_IDLE;
}

enum medley_error_code call_refuse(struct medley_device_request *request,
                                   enum medley_error_code code, const char *text)
{
    request->error.code = code;
    snprintf(request->error.text, sizeof request->error.text, "%s", text);
    return code;
}

void call_clear_results(struct medley_device_request *request)
{
    request->error.code = MEDLEY_ERROR_NONE;
    request->error.text[0] = 0;
    request->buffer = (struct medley_device_buffer){0};
    request->path = MEDLEY_COPY_NONE;
    request->memory = (struct medley_device_memory_reading){0};
    request->reading = (struct medley_reading){0};
    request->run_ns = 0;
}

enum medley_error_code call_prepare(struct medley_device *device,
                                    struct medley_device_request *request, struct call **out)
{
    if (!request || call_in_flight(request))
        return MEDLEY_ERROR_INVALID; /* its memory is not ours to write an error into */
    call_clear_results(request);
    if (!device)
        return call_refuse(request, MEDLEY_ERROR_INVALID, "no device");
    if (device->gpu->closing)
        return call_refuse(request, MEDLEY_ERROR_INVALID, "the devices are being closed");
    if (device->n_in_flight == LIMIT_DEVICE_REQUESTS) {
        char text[128];
        snprintf(text, sizeof text, "device %s: %d requests are in flight, the limit",
                 device->info->id, LIMIT_DEVICE_REQUESTS);
        return call_refuse(request, MEDLEY_ERROR_BUSY, text);
    }
    struct call *call = call_of(request);
    *call = (struct call){.request = request, .gpu = device->gpu, .device = device};
    *out = call;
    return MEDLEY_ERROR_NONE;
}

/* Who is told that it is cancelled is told so before the last piece. */
static bool call_goes_on(void *arg, bool is_last)
{
    struct call *call = arg;
    unsigned phase = CALL_IN_PIECES;
    if (is_last)
        return atomic_compare_exchange_strong(&call->phase, &phase, CALL_RUNNING);
    return atomic_load(&call->phase) != CALL_CANCELLED;
}

struct device_pieces call_pieces(struct call *call)
{
    if (call->size > DEVICE_PIECE_BYTES)
        atomic_store(&call->phase, CALL_IN_PIECES);
    return (struct device_pieces){.goes_on = call_goes_on, .arg = call};
}

/* On the device's thread. */
static void call_run(struct device_job *job)
{
    struct call *call = (struct call *)job;
    struct medley_device_request *request = call->request;
    struct error err;
    enum error_code code;
    unsigned queued = CALL_QUEUED;
    if (atomic_compare_exchange_strong(&call->phase, &queued, CALL_RUNNING)) {
        uint64_t start_ns = clock_now_ns();
        code = call->perform(call, &err);
        request->run_ns = clock_now_ns() - start_ns;
    } else {
        code = error_set(&err, ERROR_CANCELLED, "cancelled before it started");
    }
    public_error(code, &err, &request->error);
    context_complete(call->gpu, call);
}

enum medley_error_code call_submit(struct call *call,
                                   enum error_code (*perform)(struct call *, struct error *),
                                   medley_device_callback callback)
{
    assert(call->device && atomic_load(&call->phase) == CALL_IDLE);
    call->job.run = call_run;
    call->perform = perform;
    call->callback = callback;
    atomic_store(&call->phase, CALL_QUEUED);
    call->device->n_in_flight++;
    context_hold(call->gpu);
    device_submit(call->device->device, &call->job);
    return MEDLEY_ERROR_NONE;
}

enum medley_error_code medley_device_cancel(struct medley_device_request *request)
{
    if (!request || !call_in_flight(request))
        return MEDLEY_ERROR_NOT_FOUND;
    struct call *call = call_of(request);
    if (!call->device) /* the opening: libuv calls back with UV_ECANCELED if this succeeds */
        return uv_cancel((uv_req_t *)&call->gpu->work) == 0 ? MEDLEY_ERROR_NONE : MEDLEY_ERROR_BUSY;
    unsigned phase = CALL_QUEUED;
    bool cancelled = atomic_compare_exchange_strong(&call->phase, &phase, CALL_CANCELLED);
    if (!cancelled && phase == CALL_IN_PIECES)
        cancelled = atomic_compare_exchange_strong(&call->phase, &phase, CALL_CANCELLED);
    return cancelled || phase == CALL_CANCELLED ? MEDLEY_ERROR_NONE : MEDLEY_ERROR_BUSY;
}
