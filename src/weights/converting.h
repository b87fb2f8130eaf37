/* Parts of a model in a smaller type, made of the original that is on this disk and written into
 * the smaller file on the shelf: on as many threads as there are processors, as when weights are
 * converted while they are loaded. Each thread takes a chunk (LIMIT_CONVERTED_CHUNK_BYTES) and
 * about 3 MiB, or three rows, of memory. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct model;
struct shelf_model;
struct weight_source;

struct converting {
    const struct weight_source *source; /* has all of the parts */
    const struct model *smaller;        /* model_at_precision() of the source's model */
    struct shelf_model *out;            /* of converted_init()'s manifest; room is reserved */
    const uint32_t *parts;              /* not the header */
    uint32_t n_parts;
    bool (*goes_on)(void *arg); /* any thread, now and then; NULL: always */
    void *arg;
};

/* Written, not kept: shelf_model_keep() syncs and records them. ERROR_INVALID: the original has
 * changed meanwhile, or a weight is not a number. ERROR_CANCELLED: goes_on() said so. */
enum error_code converting_write(const struct converting *converting, struct error *err);
