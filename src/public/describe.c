#include "public/describe.h"

#include <stdio.h>

/* The two sets of numbers are one: so a value may be passed on as it is. */
#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(ERROR_NONE, MEDLEY_ERROR_NONE);
SAME(ERROR_INVALID, MEDLEY_ERROR_INVALID);
SAME(ERROR_NOT_FOUND, MEDLEY_ERROR_NOT_FOUND);
SAME(ERROR_NO_MEMORY, MEDLEY_ERROR_NO_MEMORY);
SAME(ERROR_UNSUPPORTED, MEDLEY_ERROR_UNSUPPORTED);
SAME(ERROR_IO, MEDLEY_ERROR_IO);
SAME(ERROR_DEVICE, MEDLEY_ERROR_DEVICE);
SAME(ERROR_BUSY, MEDLEY_ERROR_BUSY);
SAME(ERROR_CANCELLED, MEDLEY_ERROR_CANCELLED);
SAME(ERROR_INTERNAL, MEDLEY_ERROR_INTERNAL);
SAME(ERROR_TEXT_MAX, MEDLEY_ERROR_TEXT_MAX);
SAME(DEVICE_CPU, MEDLEY_DEVICE_CPU);
SAME(DEVICE_GPU, MEDLEY_DEVICE_GPU);
SAME(DEVICE_INTEGRATED_GPU, MEDLEY_DEVICE_INTEGRATED_GPU);
SAME(PRECISION_F32, MEDLEY_PRECISION_F32);
SAME(PRECISION_F16, MEDLEY_PRECISION_F16);
SAME(PRECISION_BF16, MEDLEY_PRECISION_BF16);
SAME(PRECISION_INT8, MEDLEY_PRECISION_INT8);
SAME(PRECISION_INT4, MEDLEY_PRECISION_INT4);
SAME(SUPPORT_TESTED, MEDLEY_SUPPORT_TESTED);
SAME(SUPPORT_EXPECTED, MEDLEY_SUPPORT_EXPECTED);
SAME(SUPPORT_EXPERIMENTAL, MEDLEY_SUPPORT_EXPERIMENTAL);
SAME(COPY_NONE, MEDLEY_COPY_NONE);
SAME(COPY_SAME_DEVICE, MEDLEY_COPY_SAME_DEVICE);
SAME(COPY_SAME_BACKEND, MEDLEY_COPY_SAME_BACKEND);
SAME(COPY_HOST_VISIBLE, MEDLEY_COPY_HOST_VISIBLE);
SAME(COPY_STAGED, MEDLEY_COPY_STAGED);

const char *medley_error_name(enum medley_error_code code)
{
    return error_name((enum error_code)code);
}

enum medley_error_code public_error(enum error_code code, const struct error *err,
                                    struct medley_error *out)
{
    out->code = (enum medley_error_code)code;
    out->text[0] = 0;
    if (code)
        snprintf(out->text, sizeof out->text, "%s", err->text);
    for (char *at = out->text; *at; at++) { /* what it quotes may be anything */
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
    }
    return out->code;
}

struct medley_reading public_reading(struct reading reading)
{
    return (struct medley_reading){.value = reading.valid ? reading_whole(reading) : 0,
                                   .valid = reading.valid};
}

enum medley_copy_path public_path(enum copy_path path)
{
    return (enum medley_copy_path)path;
}

#define COPY_TEXT(from, to) snprintf((to), sizeof(to), "%s", (from))

struct medley_device_info public_info(const struct device_info *info)
{
    struct medley_device_info out = {
        .total_bytes = {info->memory_total_bytes, info->memory_total_bytes != 0},
        .free_bytes = {info->memory_free_bytes, info->memory_total_bytes != 0},
        .compute_units = public_reading(info->compute_units),
        .clock_mhz = public_reading(info->clock_mhz),
        .bandwidth_mb_per_s = public_reading(info->bandwidth_mb_per_s),
        .peak_mflops = public_reading(info->peak_mflops),
        .precisions = info->precisions,
        .threads_per_block_max = public_reading(info->threads_per_block_max),
        .peer_to_peer = public_reading(info->peer_to_peer),
        .support = (enum medley_support_level)info->support,
        .kind = (enum medley_device_kind)info->kind,
    };
    COPY_TEXT(info->id, out.id);
    COPY_TEXT(info->name, out.name);
    COPY_TEXT(info->vendor, out.vendor);
    COPY_TEXT(info->backend, out.backend);
    COPY_TEXT(info->architecture, out.architecture);
    COPY_TEXT(info->driver, out.driver);
    COPY_TEXT(info->pci, out.pci);
    COPY_TEXT(info->driver_name, out.driver_name);
    COPY_TEXT(info->driver_fault, out.driver_fault);
    return out;
}
