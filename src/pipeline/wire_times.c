/* What the stages behind a micro-batch took, as the end of its message:
 *
 *   of each stage before `at`   compute, wait, link in ns, and the link's bytes (8 each);
 *                               a time that is not known: all ones
 *   back                        ns from the last stage to the driver (8); 0 before that
 *   since                       when it left the last stage, by the clock of the machine that it is
 *                               on (8); 0: unknown
 *   n                           how many stages (4)
 *
 * Only how long chunks are depends on them: a peer may say what it likes. */
#include "base/clock.h"
#include "pipeline/wire_format.h"

#include <assert.h>

enum { TIMES_TAIL = 20, TIMES_SINCE_BACK = 12 /* since, from the end */ };

static_assert(sizeof(struct request_stage_time) == WIRE_STAGE_TIME_BYTES, "four times of 8 bytes");

void wire_write_times(const struct microbatch *microbatch, struct buffer *out)
{
    const struct request_times *times = &microbatch->times;
    assert(microbatch->at <= times->n_stages && times->n_stages <= LIMIT_STAGES);
    for (uint32_t i = 0; i < microbatch->at; i++) {
        bytes_put(out, times->stages[i].compute_ns, 8);
        bytes_put(out, times->stages[i].wait_ns, 8);
        bytes_put(out, times->stages[i].link_ns, 8);
        bytes_put(out, times->stages[i].link_bytes, 8);
    }
    bytes_put(out, times->back_ns, 8);
    bytes_put(out, microbatch->since_ns, 8);
    bytes_put(out, microbatch->at, 4);
}

/* From when it left to now. Two clocks may disagree by more than that. */
static uint64_t wire_time_since(uint64_t since_ns, uint64_t now_ns)
{
    if (!since_ns)
        return REQUEST_TIME_UNKNOWN;
    return now_ns > since_ns ? now_ns - since_ns : 0;
}

enum error_code wire_read_times(struct bytes_reader *reader, uint32_t flags, uint32_t n_stages,
                                size_t size, struct microbatch *microbatch, struct error *err)
{
    struct request_times *times = &microbatch->times;
    const uint32_t at = microbatch->at;
    const uint64_t now_ns = clock_now_ns();
    times->n_stages = 0;
    microbatch->since_ns = now_ns;
    if (!(flags & WIRE_TIMES))
        return ERROR_NONE;
    assert(at <= n_stages && n_stages <= LIMIT_STAGES);
    for (uint32_t i = 0; i < at; i++) {
        times->stages[i].compute_ns = bytes_get(reader, 8);
        times->stages[i].wait_ns = bytes_get(reader, 8);
        times->stages[i].link_ns = bytes_get(reader, 8);
        times->stages[i].link_bytes = bytes_get(reader, 8);
    }
    times->back_ns = bytes_get(reader, 8);
    const uint64_t link_ns = wire_time_since(bytes_get(reader, 8), now_ns);
    const uint32_t n = bytes_get_u32(reader);
    if (n != at)
        return error_set(err, ERROR_INVALID, "times of %u stages before stage %u", n, at);
    if (at == n_stages) {
        times->back_ns = link_ns;
    } else {
        times->stages[at].link_ns = link_ns;
        times->stages[at].link_bytes = size;
    }
    times->n_stages = n_stages;
    return ERROR_NONE;
}

/* ---- on the way ------------------------------------------------------------------------ */

/* The bytes of the times; 0: there are none. */
static size_t wire_times_size(const struct buffer *message)
{
    const unsigned char *bytes = (const unsigned char *)message->data;
    if (message->size < WIRE_HEADER_BYTES + TIMES_TAIL || !(bytes[WIRE_FLAGS_AT] & WIRE_TIMES))
        return 0;
    const uint64_t n = bytes_load(bytes + message->size - 4, 4);
    const uint64_t size = n * WIRE_STAGE_TIME_BYTES + TIMES_TAIL;
    return n <= LIMIT_STAGES && size <= message->size - WIRE_HEADER_BYTES ? (size_t)size : 0;
}

static void wire_set_since(struct buffer *message, uint64_t since_ns)
{
    bytes_store((unsigned char *)message->data + message->size - TIMES_SINCE_BACK, 8, since_ns);
}

void wire_shift_times(struct buffer *message, int64_t ahead_ns)
{
    if (!wire_times_size(message))
        return;
    const uint64_t since_ns =
        bytes_load((const unsigned char *)message->data + message->size - TIMES_SINCE_BACK, 8);
    if (since_ns)
        wire_set_since(message, since_ns + (uint64_t)ahead_ns);
}

void wire_hide_times(struct buffer *message)
{
    if (wire_times_size(message))
        wire_set_since(message, 0);
}
