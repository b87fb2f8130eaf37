/* The chunks in which a prompt goes through several devices, one after the other: how long each is,
 * and when the last has left the last device. Pure: no clock, no memory, no other state.
 *
 * A chunk of r rows, behind b tokens, takes a device
 *
 *     fixed + r (row + row_token (b + r / 2))
 *
 * fixed: weights are read and unpacked, threads meet; row_token: attention. A device begins when it
 * has ended the chunk before and when this one has come, and one chunk more than there are devices
 * is under way at most (pipeline/settings.h).
 *
 * Where all devices take the same time, n chunks of P rows together take d of them
 *
 *     (n + d - 1) (fixed + P / n row)
 *
 * which is least for n = sqrt((d - 1) P row / fixed). Chunks are equal then: with any lengths c it
 * is the sum of all and d - 1 times the longest, in any order (a proportionate flow shop: Pinedo,
 * Scheduling, chapter 6).
 *
 * Where one device is slower than the others, it should never wait, and the others should have
 * little to do before it begins and after it has ended. So, before a slower device, chunks begin
 * short and grow, and behind one they become shorter towards the end, each just so much that the
 * slower device is still busy when the next comes, or has gone. Of such plans, and of equal chunks,
 * that is taken which ends first. */
#pragma once

#include <stdint.h>

enum {
    CHUNK_ROWS_MIN = 32,    /* fewer cost more a row than the line above says */
    CHUNK_ROWS_STEP = 8,    /* products take rows by so many */
    CHUNK_PLAN_ROWS = 8192, /* of longer prompts both ends are planned */
    CHUNK_PLAN_MAX = CHUNK_PLAN_ROWS / CHUNK_ROWS_MIN + 4
};

/* What a chunk takes a device, in any unit of time. */
struct chunk_line {
    double fixed, row, row_token;
};
double chunk_line_time(const struct chunk_line *line, double n_rows, double n_before);

struct chunk_work {
    const struct chunk_line *lines; /* of each device, at least one; `row` is above 0 */
    uint32_t n_devices;
    uint32_t rows_max; /* of a chunk, at least 1 */
    uint64_t n_before; /* tokens before the prompt's first row, in the cache */
    uint64_t n_rows;
};

struct chunk_plan {
    uint32_t n_chunks;
    uint32_t rows[CHUNK_PLAN_MAX]; /* together those of the prompt, or CHUNK_PLAN_ROWS */
    double ends;                   /* when the last of these has left the last device */
};

void chunk_plan(const struct chunk_work *work, struct chunk_plan *out);

/* Rows of the next chunk while n_left of the prompt are not yet under way; at least 1. A plan may
 * be another than that by which the chunks before were cut: then this goes on at the nearest end of
 * a chunk. */
uint32_t chunk_plan_next(const struct chunk_plan *plan, const struct chunk_work *work,
                         uint64_t n_left);
