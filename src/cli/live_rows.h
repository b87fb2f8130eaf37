/* The devices of the live view (docs/monitoring.md) as rows for people and programs. Pure. The view
 * is foreign: what is missing or of another type is not known. */
#pragma once

#include "base/buffer.h"

#include <stdbool.h>
#include <stdint.h>
#include <yyjson.h>

enum { LIVE_ROWS_MAX = 4096 };

struct live_row {
    const char *node_id, *node, *state, *device, *kind,
        *governor; /* the view's; governor NULL: unknown */
    double temperature_c, use_share, power_w, clock_mhz, duty_share, limit_c, predicted_c,
        seconds_to_limit, memory_bytes, free_bytes; /* NAN: unknown */
};

struct live_rows {
    struct live_row *rows; /* mem_free() */
    uint32_t n;
};

/* All devices, in the view's order; `hottest_first`: by temperature, those without one last. False:
 * no memory. */
bool live_rows_read(yyjson_mut_val *view, bool hottest_first, struct live_rows *out);
void live_rows_deinit(struct live_rows *rows);

/* `medley heat`: a table of at most `height` lines (0: all). */
void live_rows_show_heat(const struct live_rows *rows, uint32_t height, struct buffer *out);
/* {"devices":[…]} on one line; unknown is null. */
bool live_rows_write(const struct live_rows *rows, struct buffer *out);

/* `medley top --cluster`: what all are together, each node's load, each device. At most `height`
 * lines (0: all) of at most `width` columns (0: as many as it takes). */
void live_rows_show_all(yyjson_mut_val *view, const struct live_rows *rows, uint32_t width,
                        uint32_t height, struct buffer *out);
