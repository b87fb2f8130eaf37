/* A request in flight: what lies in medley_device_request.reserved. Private to src/public.
 *
 *   IDLE --submit--> QUEUED --device thread--> RUNNING --> callback: IDLE
 *                      |                 \--> IN_PIECES --last piece--> RUNNING
 *                      |                           \--cancel--> CANCELLED --> callback: IDLE
 *                      \--cancel--> CANCELLED --device thread--> callback: IDLE
 *
 * A cancelled call stays in its queue, so that its callback comes in its turn. */
#pragma once

#include "gpu/gpu.h"

#include <medley/gpu.h>
#include <stdatomic.h>

enum call_phase { CALL_IDLE, CALL_QUEUED, CALL_RUNNING, CALL_IN_PIECES, CALL_CANCELLED };

struct call {
    struct device_job job; /* first: the queue gives it back */
    struct medley_device_request *request;
    struct medley_gpu *gpu;
    struct medley_device *device; /* NULL: the opening of the handle */
    medley_device_callback callback;
    enum error_code (*perform)(struct call *call, struct error *err); /* on the device's thread */
    struct call *next_done;
    atomic_uint phase;

    /* the operation's arguments */
    struct device_buffer buffer;
    uint64_t offset;
    uint64_t size;
    void *to;
    const void *from;
    struct medley_device *device_to;
    struct device_buffer buffer_to;
    uint64_t offset_to;
};

struct call *call_of(struct medley_device_request *request);
/* For gpu.h's transfers in pieces: of a request that runs and can be cancelled until its last. */
struct device_pieces call_pieces(struct call *call);
bool call_in_flight(struct medley_device_request *request);
void call_clear_results(struct medley_device_request *request);

/* Makes the request ready to be submitted, results cleared. On failure nothing is to be
 * submitted. */
enum medley_error_code call_prepare(struct medley_device *device,
                                    struct medley_device_request *request, struct call **out);
enum medley_error_code call_refuse(struct medley_device_request *request,
                                   enum medley_error_code code, const char *text);
enum medley_error_code call_submit(struct call *call,
                                   enum error_code (*perform)(struct call *, struct error *),
                                   medley_device_callback callback);
