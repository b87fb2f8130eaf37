/* One answer of a model, streamed to stdout as whole characters; Ctrl-C cuts it short. */
#pragma once

#include "base/buffer.h"
#include "cli/session.h"

struct constraint;

struct reply_options {
    struct sampler_params sampler;
    uint32_t n_predict; /* UINT32_MAX: until the model ends or the context is full */
    bool quiet;         /* prints nothing; the caller does */
    /* Where the context is full before the answer is: drop the older half of it and go on. What is
     * left is read anew, so that nothing rests on what was dropped; `dropped` tells. Else the
     * answer ends there (FINISH_LENGTH). */
    bool context_shift;
    struct constraint *constraint; /* what the answer must follow; NULL: nothing. Without shifts */
    const struct request_picture *pictures; /* in the prompt. Without shifts */
    uint32_t n_pictures;
};

struct reply { /* a zeroed one is empty */
    struct buffer text;
    struct token_list tokens;
    enum finish_reason reason;
    struct request_usage usage;
    uint32_t shifts;    /* how often the context was full */
    uint32_t n_dropped; /* tokens, in all */
};
void reply_deinit(struct reply *reply);

/* Fills an empty reply. FINISH_CANCELLED is not an error: the reply holds what came before. */
enum error_code reply_generate(const struct session *session, const struct token_list *prompt,
                               const struct reply_options *options, struct reply *out,
                               struct error *err);

/* "prompt 12 tokens (4 cached) 120.1 tok/s (forecast 118.0), answer 100 tokens 45.2 tok/s (forecast
 * 44.8); cpu 10 layers (38 % of the time), …" on stderr. The forecast is left out where a device's
 * speed was never measured. The difference also goes to the log (info). */
void reply_report(const struct session *session, const struct reply *reply);

double
reply_prefill_tokens_per_s(const struct reply *reply); /* of the tokens that were not cached */
double reply_decode_tokens_per_s(const struct reply *reply); /* 0: fewer than two tokens */

const char *
finish_reason_name(enum finish_reason reason); /* "stop", "length", "cancelled", "error" */

/* Ctrl-C, from the first call on: whether it came since the last interrupts_clear(). A second one
 * ends the process. */
void interrupts_catch(void);
unsigned interrupts(void); /* 0 or 1 */
void interrupts_clear(void);
