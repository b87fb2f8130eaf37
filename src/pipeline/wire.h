/* A micro-batch as bytes, on its way between machines. Pure.
 *
 * One message serves both ways: towards a stage it has rows and (but for stage 0) their hidden
 * states; back to the driver, behind the last stage, picks and the outputs that were asked for.
 * Everything is little-endian, without padding but before the values, which begin at a multiple of
 * 8 bytes; so does the message, for its reader.
 *
 *   header      wire_header's fields in their order, WIRE_HEADER_BYTES
 *   setups      how tokens are chosen from now on in a slot; where the header's flag says so, each
 *               with where its answer begins (4) and the source of its grammar: kind (1; 0: none),
 *               annotate (1), size (4), text
 *   operations  on the KV cache; where the header's flag says so, each with its kind (1), its place
 *               (1) and its id (4)
 *   shares      the rows of one slot: where they stand, what is wanted, whether they failed on the
 *               way; where the header's flag says so, each with how many of its rows are drafted
 * (2) and how many tokens were picked (2; 0 before the last stage) tokens      of the shares' rows,
 * with the output bit as the highest picks       of the shares that want some (behind the last
 * stage) error       text, when a share failed or a grammar was refused values      hidden states
 * as engine/activation.h has them, or outputs as F32 times       where the header's flag says so:
 * what the stages behind it took (wire_times.c)
 *
 * The reader trusts nothing: counts, slots, positions and tokens are checked against what the
 * pipeline has (wire_shape), the length against what the counts say, before a byte is stored. A
 * driver that is right never sends what a reader refuses, so a refusal ends the connection. */
#pragma once

#include "base/buffer.h"
#include "engine/activation.h"
#include "pipeline/microbatch.h"

enum {
    WIRE_HEADER_BYTES = 64,
    LIMIT_WIRE_GRAMMARS = LIMIT_GRAMMAR_BYTES /* bytes of all sources in one message */
};

struct wire_route {
    uint64_t instance; /* the running model … */
    uint64_t
        epoch; /* … and the placement of it that this belongs to: stages of another one drop it */
    uint64_t number; /* the driver's, of this micro-batch */
};

/* What every end of a pipeline knows of it. */
struct wire_shape {
    uint32_t n_stages, n_slots, context, n_vocab, n_embd;
    uint32_t n_carried; /* values of a hidden row beside n_embd (model/architecture.h) */
    uint32_t given_width, given_stages; /* of a picture's row; the first stages, that take it */
    uint32_t rows, operations, picks;   /* of one micro-batch, at most */
    uint32_t checkpoints;               /* places for states */
    uint64_t output_floats;
};

static inline uint32_t wire_hidden_width(const struct wire_shape *shape)
{
    return shape->n_embd + shape->n_carried;
}

/* Appends the message. `scratch`: a hidden row's floats. On lack of memory out->failed. */
void wire_write(const struct microbatch *microbatch, const struct wire_route *route,
                enum activation_type type, const struct wire_shape *shape, float *scratch,
                struct buffer *out);

/* The route alone, so that the right pipeline can be found. ERROR_INVALID: not a micro-batch. */
enum error_code wire_read_route(const void *bytes, size_t size, struct wire_route *out,
                                struct error *err);

/* A message and what its header says: for whom it is, and how much it is. */
struct microbatch_message {
    struct wire_route route;
    uint32_t at; /* the stage it goes to; behind the last: the driver. Not checked */
    uint32_t n_rows;
    const void *bytes;
    size_t size;
    /* What holds the bytes, and may be taken by leaving another buffer; NULL: they are only lent.
     */
    struct buffer *own;
};
/* Of the header alone; `own` is NULL. ERROR_INVALID: not a micro-batch. */
enum error_code wire_read_message(const void *bytes, size_t size, struct microbatch_message *out,
                                  struct error *err);

/* ---- times, which are the end of a message: for who carries it between machines ---- */

enum {
    WIRE_STAGE_TIME_BYTES = 32,
    WIRE_TIMES_BYTES_MAX = LIMIT_STAGES * WIRE_STAGE_TIME_BYTES + 20
};

/* Turns when it was sent into the peer's clock, which is `ahead_ns` ahead of this machine's. */
void wire_shift_times(struct buffer *message, int64_t ahead_ns);
/* The same where that is not known: then neither is how long it is under way. */
void wire_hide_times(struct buffer *message);

/* The longest message that there can be. */
uint64_t wire_bytes_max(const struct wire_shape *shape);

/* A notice: a header alone, with the number 0, which no micro-batch has. It says to the driver that
 * messages of its pipeline may have been lost. */
void wire_write_notice(const struct wire_route *route, struct buffer *out);
bool wire_is_notice(const struct wire_route *route);

/* Fills a micro-batch that microbatch_init() made with at least these sizes and both hidden
 * buffers. On error it is cleared and the text says what was wrong where. Values that are no
 * numbers are not an error of the message: its shares are then marked as failed. */
enum error_code wire_read(const void *bytes, size_t size, const struct wire_shape *shape,
                          struct microbatch *microbatch, struct error *err);

/* The same for one that is under way and comes back to its sender: shares, and what they want, must
 * be those that were sent, and they keep their place. On error the micro-batch is lost: fail its
 * shares. */
enum error_code wire_read_back(const void *bytes, size_t size, const struct wire_shape *shape,
                               struct microbatch *microbatch, struct error *err);
