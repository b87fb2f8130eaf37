/* What each operation does on its device's thread, and how it is submitted. */
#include "public/call.h"
#include "public/context.h"
#include "public/describe.h"

/* ---- memory ---------------------------------------------------------------------------- */

static enum error_code perform_alloc(struct call *call, struct error *err)
{
    struct device_buffer buffer;
    enum error_code code = device_alloc(call->device->device, call->size, &buffer, err);
    if (!code)
        call->request->buffer.handle = buffer.handle;
    return code;
}

enum medley_error_code medley_device_alloc(struct medley_device *device,
                                           struct medley_device_request *request, uint64_t size,
                                           medley_device_callback callback)
{
    struct call *call;
    enum medley_error_code code = call_prepare(device, request, &call);
    if (code)
        return code;
    call->size = size;
    return call_submit(call, perform_alloc, callback);
}

static enum error_code perform_free(struct call *call, struct error *err)
{
    return device_free(call->device->device, call->buffer, err);
}

enum medley_error_code medley_device_free(struct medley_device *device,
                                          struct medley_device_request *request,
                                          struct medley_device_buffer buffer,
                                          medley_device_callback callback)
{
    struct call *call;
    enum medley_error_code code = call_prepare(device, request, &call);
    if (code)
        return code;
    call->buffer.handle = buffer.handle;
    return call_submit(call, perform_free, callback);
}

/* ---- transfers ------------------------------------------------------------------------- */

static enum error_code perform_write(struct call *call, struct error *err)
{
    const struct device_pieces pieces = call_pieces(call);
    return device_write_pieces(call->device->device, call->buffer, call->offset, call->from,
                               call->size, &pieces, err);
}

enum medley_error_code medley_device_write(struct medley_device *device,
                                           struct medley_device_request *request,
                                           struct medley_device_buffer to, uint64_t offset,
                                           const void *from, uint64_t size,
                                           medley_device_callback callback)
{
    struct call *call;
    enum medley_error_code code = call_prepare(device, request, &call);
    if (code)
        return code;
    if (size && !from)
        return call_refuse(request, MEDLEY_ERROR_INVALID, "write: from where?");
    call->buffer.handle = to.handle;
    call->offset = offset;
    call->from = from;
    call->size = size;
    return call_submit(call, perform_write, callback);
}

static enum error_code perform_read(struct call *call, struct error *err)
{
    const struct device_pieces pieces = call_pieces(call);
    return device_read_pieces(call->device->device, call->buffer, call->offset, call->to,
                              call->size, &pieces, err);
}

enum medley_error_code medley_device_read(struct medley_device *device,
                                          struct medley_device_request *request,
                                          struct medley_device_buffer from, uint64_t offset,
                                          void *to, uint64_t size, medley_device_callback callback)
{
    struct call *call;
    enum medley_error_code code = call_prepare(device, request, &call);
    if (code)
        return code;
    if (size && !to)
        return call_refuse(request, MEDLEY_ERROR_INVALID, "read: to where?");
    call->buffer.handle = from.handle;
    call->offset = offset;
    call->to = to;
    call->size = size;
    return call_submit(call, perform_read, callback);
}

static enum error_code perform_copy(struct call *call, struct error *err)
{
    enum copy_path path;
    const struct device_pieces pieces = call_pieces(call);
    enum error_code code = device_copy_pieces(call->device->device, call->buffer, call->offset,
                                              call->device_to->device, call->buffer_to,
                                              call->offset_to, call->size, &pieces, &path, err);
    call->request->path = public_path(path);
    return code;
}

enum medley_error_code medley_device_copy(struct medley_device *device_from,
                                          struct medley_device_request *request,
                                          struct medley_device_buffer from, uint64_t offset_from,
                                          struct medley_device *device_to,
                                          struct medley_device_buffer to, uint64_t offset_to,
                                          uint64_t size, medley_device_callback callback)
{
    struct call *call;
    enum medley_error_code code = call_prepare(device_from, request, &call);
    if (code)
        return code;
    if (!device_to || device_to->gpu != device_from->gpu)
        return call_refuse(request, MEDLEY_ERROR_INVALID,
                           "copy: the two devices are not of one handle");
    call->buffer.handle = from.handle;
    call->offset = offset_from;
    call->device_to = device_to;
    call->buffer_to.handle = to.handle;
    call->offset_to = offset_to;
    call->size = size;
    return call_submit(call, perform_copy, callback);
}

static enum error_code perform_synchronize(struct call *call, struct error *err)
{
    return device_synchronize(call->device->device, err);
}

/* ---- what takes no arguments --------------------------------------------------------------- */

static enum medley_error_code
submit_plain(struct medley_device *device, struct medley_device_request *request,
             enum error_code (*perform)(struct call *, struct error *),
             medley_device_callback callback)
{
    struct call *call;
    enum medley_error_code code = call_prepare(device, request, &call);
    return code ? code : call_submit(call, perform, callback);
}

enum medley_error_code medley_device_synchronize(struct medley_device *device,
                                                 struct medley_device_request *request,
                                                 medley_device_callback callback)
{
    return submit_plain(device, request, perform_synchronize, callback);
}

static enum error_code perform_memory(struct call *call, struct error *err)
{
    (void)err;
    struct device_memory memory = device_memory(call->device->device);
    bool valid = memory.total_bytes != 0; /* verification refuses a device that says 0 */
    call->request->memory.free_bytes = (struct medley_reading){memory.free_bytes, valid};
    call->request->memory.total_bytes = (struct medley_reading){memory.total_bytes, valid};
    return ERROR_NONE;
}

enum medley_error_code medley_device_memory(struct medley_device *device,
                                            struct medley_device_request *request,
                                            medley_device_callback callback)
{
    return submit_plain(device, request, perform_memory, callback);
}

static enum error_code perform_temperature(struct call *call, struct error *err)
{
    (void)err;
    call->request->reading = public_reading(device_temperature_mc(call->device->device));
    return ERROR_NONE;
}

enum medley_error_code medley_device_temperature_mc(struct medley_device *device,
                                                    struct medley_device_request *request,
                                                    medley_device_callback callback)
{
    return submit_plain(device, request, perform_temperature, callback);
}

static enum error_code perform_power(struct call *call, struct error *err)
{
    (void)err;
    call->request->reading = public_reading(device_power_mw(call->device->device));
    return ERROR_NONE;
}

enum medley_error_code medley_device_power_mw(struct medley_device *device,
                                              struct medley_device_request *request,
                                              medley_device_callback callback)
{
    return submit_plain(device, request, perform_power, callback);
}

static enum error_code perform_clock(struct call *call, struct error *err)
{
    (void)err;
    call->request->reading = public_reading(device_clock_mhz(call->device->device));
    return ERROR_NONE;
}

enum medley_error_code medley_device_clock_mhz(struct medley_device *device,
                                               struct medley_device_request *request,
                                               medley_device_callback callback)
{
    return submit_plain(device, request, perform_clock, callback);
}
