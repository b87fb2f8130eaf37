/* Pictures in requests: what the driver can take. */
#include "pipeline/driver_state.h"

#include "pipeline/settings.h"

static enum error_code driver_check_picture(const struct driver *driver,
                                            const struct request *request, uint32_t index,
                                            struct error *err)
{
    const struct picture_rows *rows = prompt_picture_rows(request->pictures[index].picture);
    const uint32_t width = driver->pipeline.shape.given_width, most = driver->options.batch_rows;
    if (rows->width != width)
        return error_set(err, ERROR_INVALID,
                         "picture %u has rows of %u values; this model takes %u: the projector is "
                         "another model's",
                         index, rows->width, width);
    if (driver->has_axes && !rows->grid_width)
        return error_set(err, ERROR_INVALID,
                         "picture %u does not say how wide it is, which this model needs", index);
    if (rows->is_whole && rows->n_rows > most)
        return error_set(err, ERROR_INVALID,
                         "picture %u has %u rows that are computed at once, and a micro-batch has "
                         "%u: use --batch %u or more",
                         index, rows->n_rows, most, rows->n_rows);
    if (rows->is_whole && request->want_all_logits && rows->n_rows > OUTPUT_ALL_ROWS)
        return error_set(err, ERROR_INVALID,
                         "picture %u has %u rows that are computed at once; logits of each are "
                         "given for %d at most",
                         index, rows->n_rows, OUTPUT_ALL_ROWS);
    return ERROR_NONE;
}

enum error_code driver_check_pictures(const struct driver *driver, const struct request *request,
                                      struct error *err)
{
    enum error_code code = ERROR_NONE;
    if (request->n_pictures && !driver->pipeline.shape.given_width)
        return error_set(err, ERROR_UNSUPPORTED, "this model takes no pictures");
    for (uint32_t i = 0; !code && i < request->n_pictures; i++)
        code = driver_check_picture(driver, request, i, err);
    const uint64_t bytes = driver_picture_bytes(request);
    if (!code && bytes > (uint64_t)LIMIT_PICTURES_MIB << 20)
        code = error_set(err, ERROR_INVALID,
                         "the pictures of the request take %llu MiB; the limit is %d",
                         (unsigned long long)(bytes >> 20), LIMIT_PICTURES_MIB);
    return code;
}

uint64_t driver_picture_bytes(const struct request *request)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < request->n_pictures; i++)
        bytes += prompt_picture_bytes(request->pictures[i].picture);
    return bytes;
}
