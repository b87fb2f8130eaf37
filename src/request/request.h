/* A request: tokens in, tokens out, and what may be said about it on the way. It is what the API
 * and the commands need to know of whoever answers (generator.h), and pulls in no stages.
 *
 * Handlers run one at a time, on a thread of whoever answers, not always the same one; they must
 * not block. A request that was accepted ends with exactly one `done`.
 *
 * Who keeps a request owns a copy (request_copy()). Who takes one from elsewhere checks it here:
 * request_check() says whether it makes sense by itself, request_check_room() whether it fits into
 * a context. There is no other check of either. Pure; any thread. */
#pragma once

#include "base/limits.h"
#include "engine/sampler.h"
#include "request/constraint.h"
#include "request/prompt_picture.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum finish_reason {
    FINISH_STOP,   /* the model ended, or a callback asked to stop */
    FINISH_LENGTH, /* n_predict is reached, or prompt and generated tokens fill the context */
    FINISH_CANCELLED,
    FINISH_ERROR, /* see the error */
};

struct token_event {
    int32_t token;
    uint32_t index;                  /* 0 for the first generated token */
    float logprob;                   /* when asked for */
    const struct token_logprob *top; /* n_top of them */
    uint32_t n_top;
};

/* A time that nobody knows. */
#define REQUEST_TIME_UNKNOWN UINT64_MAX

/* What one stage did for a request, summed over its micro-batches, which others may have been in,
 * too. Micro-batches may be under way at the same time: only times of computing never overlap. */
struct request_stage_time {
    uint64_t compute_ns; /* from its first row's operations to its last pick */
    uint64_t wait_ns;    /* where it is, for the device */
    uint64_t link_ns;    /* on the way to it, from the stage before; or REQUEST_TIME_UNKNOWN */
    uint64_t link_bytes; /* of messages to it; 0: the stage before is in its process */
};

struct request_times {
    uint32_t n_stages; /* 0: unknown */
    bool is_partial;   /* of some micro-batch they were not known */
    struct request_stage_time stages[LIMIT_STAGES];
    uint64_t back_ns; /* from the last stage to the driver; 0: it is there */
};

struct request_usage {
    uint32_t prompt_tokens;
    uint32_t cached_tokens; /* of the prompt, reused from a slot */
    uint32_t generated_tokens;
    uint64_t queued_ns, prefill_ns, decode_ns; /* submit → slot → first token → end */
    /* Of that, while the slowest stage computed its micro-batches, which others may have been in,
     * too. 0: unknown. */
    uint64_t slowest_ns;
    struct request_times times;
    uint64_t
        held_up_ns; /* of these, other programs had this machine's processor; not told elsewhere
                     */
    uint32_t drafted_tokens, accepted_tokens; /* guessed, and of those that are in the answer */
};

/* Adds what one more micro-batch took; `more` of 0 stages: unknown, and so is the sum then
 * (request_times_know()). */
void request_times_add(struct request_times *sum, const struct request_times *more);
/* They are known, of all micro-batches. */
bool request_times_know(const struct request_times *times);

struct request_handlers {
    /* A token was generated. Return false to stop here (FINISH_STOP). A token that ends generation
     * is not delivered. */
    bool (*token)(void *arg, const struct token_event *event);
    /* Optional: logits of a row that was asked for (`want_all_logits`): position in the prompt,
     * n_vocab floats; or the embedding (n_embd floats) of each prompt row when `embeddings`. */
    void (*row)(void *arg, uint32_t position, const float *values, uint32_t n_values);
    /* The request is over, always called exactly once for an accepted request. `err` only with
     * FINISH_ERROR. */
    void (*done)(void *arg, enum finish_reason reason, const struct request_usage *usage,
                 const struct error *err);
};

struct request {
    const int32_t *prompt;         /* copied */
    uint32_t n_prompt;             /* at least 1 */
    uint32_t n_predict;            /* tokens to generate at most; 0 only computes the prompt */
    struct sampler_params sampler; /* biases are copied */
    const int32_t *stop_tokens; /* copied; tokens that end generation (the tokenizer's EOS/EOT …) */
    uint32_t n_stop_tokens;
    bool logprobs;
    uint32_t n_top_logprobs;
    bool want_all_logits; /* `row` gets the logits of every position, those of the generated tokens
                             (the last, too) included */
    bool embeddings; /* `row` gets every prompt position's hidden state; n_predict is 0. Neither
                        reuses a prefix */
    /* Of the model, where the asker knows it: an answer from another node that does not fit is not
     * handed on. 0: unknown; then LIMIT_VOCAB is the bound. They do not travel. */
    uint32_t n_vocab, n_embd;
    /* Whose it is: cached tokens are reused between requests with the same key only, so that
     * neither `cached_tokens` nor the time to the first token tells of others' prompts. 0:
     * nobody's. */
    uint64_t cache_key;
    /* The grammar that the answer follows; NULL: none. Kept by copies. The prompt's last n_answered
     * tokens are the answer's beginning, where another driver has come so far. */
    struct constraint *constraint;
    uint32_t n_answered;
    /* It ends with an error where a driver would first have to be waited for: nothing is loaded for
     * it. It does not travel. */
    bool never_waits;
    /* Where rows stand in the prompt in place of tokens' embeddings, in order. Kept by copies. Not
     * with `embeddings`. */
    const struct request_picture *pictures;
    uint32_t n_pictures;
    struct request_handlers handlers;
    void *arg;
};

/* What must be so wherever it runs: a prompt of tokens below n_vocab and its pictures' (LIMIT_VOCAB
 * where the model is not known), counts within their limits, a sampler in its ranges, wishes that
 * do not exclude each other. ERROR_INVALID with the field's name. */
enum error_code request_check(const struct request *request, uint32_t n_vocab, struct error *err);

/* A part of that: the counts alone, before anything is read that they count. */
enum error_code request_check_counts(const struct request *request, struct error *err);

/* Handlers for what it asks for, and room for the prompt in the context, with an answer.
 * ERROR_INVALID with both numbers. */
enum error_code request_check_room(const struct request *request, uint32_t context,
                                   struct error *err);

/* `more`: tokens for which there is room behind the prompt's. ERROR_NO_MEMORY; *out is
 * deinitialised then. */
enum error_code request_copy(const struct request *request, uint32_t more, struct request *out,
                             struct error *err);
void request_copy_deinit(struct request *copy); /* zeroed is fine */

/* Counted by whoever answers requests, since it was opened. */
/* Of replies that have ended, well or not: what the forecast is compared with. */
struct driver_served {
    uint64_t replies, reply_tokens, reply_ns; /* of two tokens or more; the first aside */
    uint64_t prompts, prompt_rows, prompt_ns; /* rows that were computed; slot → first token */
};

struct driver_stats {
    uint32_t slots_total, slots_busy, queued;
    uint64_t requests_total, prompt_tokens_total, cached_tokens_total, generated_tokens_total;
    uint64_t steps_total, rows_total;
    uint32_t cells_total, cells_free; /* of all sequences together; 0: each has its own */
    uint32_t cells_shared;            /* by several of them, each counted once */
    uint32_t parked;                  /* of slots_busy: wait for cells */
    uint64_t parked_total;
    uint64_t drafted_tokens_total, accepted_tokens_total;
    uint64_t prompt_row_ns; /* of prompts of late, on the slowest stage; 0: not known */
    struct driver_served served;
};
