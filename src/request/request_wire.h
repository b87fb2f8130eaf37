/* Requests and their answers as bytes, between whoever asks and the node that has the driver. Pure.
 *
 * A request's asker chooses its id; everything about it bears that id, and the two ends of a
 * connection are the only ones who use it. The asker sends SUBMIT and perhaps CANCEL; the driver's
 * end answers ACCEPTED or REFUSED, then TOKENS and ROW as they come, in order, and DONE, once.
 * After CANCEL the asker wants to hear nothing more; DONE may still come, or may have come.
 *
 * Messages are written into a run: each has its length in front (4 bytes), so that many travel in
 * one frame, or one after another on a socket. Everything is little-endian, without padding.
 *
 *   message    kind (1 byte), id (8), then by kind
 *   SUBMIT     n_predict, flags, n_top_logprobs, n_biases, n_stop_tokens, n_prompt (4 each); the
 *              sampler's parameters in their order; the instance (1 byte of length, text); biases
 *              (token, bias), stop tokens, prompt; the cache key (8; not there before 0.2: 0);
 *              how many of the prompt's tokens are the answer's (4), the grammar's kind, whether
 *              formats say nothing (1 each), and its source (4 of length, text); a node
 *              without grammars writes none of the four; pictures (request_wire_pictures.c;
 *              not there before 1.2: none)
 *   REFUSED    error's code (2 bytes), its text (2 bytes of length, text)
 *   TOKENS     how many (4), then of each token, index, logprob, n_top (4 each), and n_top times
 *              token, logprob
 *   ROW        position, n_values (4 each), values as F32
 *   DONE       reason (1), flags (1), usage in its order, error as in REFUSED, slowest_ns (8; not
 *              there before 0.2: 0), its stages' times (not there before 1.1: unknown): how many
 *              (4), of each compute, wait, link and the link's bytes (8 each), and the way back
 * (8); tokens drafted, and accepted (4 each; not there before 1.2: 0) ACCEPTED, CANCEL: nothing
 *
 * What is behind the part that this version knows was appended by a newer one and is ignored; so is
 * a whole message of an unknown kind. The reader trusts nothing: every count is checked against its
 * limit and against the bytes that are there before anything is stored. */
#pragma once

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "request/request.h"

enum request_kind {
    REQUEST_SUBMIT = 1,
    REQUEST_ACCEPTED = 2,
    REQUEST_REFUSED = 3,
    REQUEST_TOKENS = 4,
    REQUEST_ROW = 5,
    REQUEST_DONE = 6,
    REQUEST_CANCEL = 7,
};

enum { REQUEST_LENGTH_BYTES = 4 };

/* ---- writing: each appends to a run; on lack of memory run->failed ---- */

/* Its pictures are not too large for a message. ERROR_INVALID says what to do. */
enum error_code request_check_travels(const struct request *request, struct error *err);

/* The request has passed request_check() and request_check_travels(). Its handlers do not travel.
 */
void request_write_submit(uint64_t id, const char *instance, const struct request *request,
                          struct buffer *run);
/* The same with the wish that who gets it hands it on to the driver's node, where that is another:
 * once. */
void request_write_submit_onward(uint64_t id, const char *instance, const struct request *request,
                                 struct buffer *run);
void request_write_accepted(uint64_t id, struct buffer *run);
void request_write_refused(uint64_t id, const struct error *why, struct buffer *run);
void request_write_row(uint64_t id, uint32_t position, const float *values, uint32_t n_values,
                       struct buffer *run);
/* `lost`: the driver cannot go on, and the request is not to blame: it may go on elsewhere. `why`:
 * with FINISH_ERROR.
 */
void request_write_done(uint64_t id, enum finish_reason reason, const struct request_usage *usage,
                        const struct error *why, bool lost, struct buffer *run);
void request_write_cancel(uint64_t id, struct buffer *run);

/* A token joins the run's last message where that holds tokens of the same request and is not full:
 * the message begins at *last (where this function left it; anything behind the run's end when
 * there is none). */
void request_write_token(uint64_t id, const struct token_event *event, size_t *last,
                         struct buffer *run);

/* ---- reading ---- */

/* The next message of a run: its bytes where they stand, the reader is behind them. A message that
 * is not there as a whole is left where it is: *message is NULL. ERROR_INVALID: longer than
 * LIMIT_REQUEST_BYTES. */
enum error_code request_next(struct bytes_reader *run, const void **message, size_t *size,
                             struct error *err);

struct request_message {
    unsigned kind; /* a request_kind, or one that this version does not know */
    uint64_t id;
    union {
        struct {
            char instance[LIMIT_CLUSTER_ID_BYTES + 1];
            struct request request; /* points into `memory`; no handlers */
            bool onward;
        } submit;
        struct {
            uint32_t count;
            struct bytes_reader reader; /* for request_next_token() */
        } tokens;
        struct {
            uint32_t position, n_values;
            const void *values; /* where they stand in the message, at any address */
        } row;
        struct {
            enum finish_reason reason;
            struct request_usage usage;
            bool lost;
        } done;
    };
    struct error error; /* of REFUSED, and of DONE with FINISH_ERROR */
    void *memory;       /* of SUBMIT */
};

/* What points into the message is good as long as its bytes are. ERROR_INVALID: it breaks the
 * rules, and so does who sent it; nothing needs to be freed then. ERROR_NO_MEMORY. */
enum error_code request_read(const void *message, size_t size, struct request_message *out,
                             struct error *err);
void request_message_deinit(struct request_message *message);

/* The next of `tokens.count` tokens, which request_read() has checked; `top` has room for
 * LIMIT_TOP_LOGPROBS. */
void request_next_token(struct request_message *message, struct token_event *event,
                        struct token_logprob *top);
