/* One answer of a model, streamed to stdout as whole characters; Ctrl-C cuts it short. */
#pragma once

#include "base/buffer.h"
#include "cli/session.h"

struct reply_options {
    struct sampler_params sampler;
    uint32_t n_predict; /* UINT32_MAX: until the model ends or the context is full */
    bool quiet;         /* prints nothing; the caller does */
};

struct reply { /* a zeroed one is empty */
    struct buffer text;
    struct token_list tokens;
    enum finish_reason reason;
    struct request_usage usage;
};
void reply_deinit(struct reply *reply);

/* Fills an empty reply. FINISH_CANCELLED is not an error: the reply holds what came before. */
enum error_code reply_generate(const struct session *session, const struct token_list *prompt,
                               const struct reply_options *options, struct reply *out, struct error *err);

/* "prompt 12 tokens (4 cached) 120.1 tok/s, answer 100 tokens 45.2 tok/s; cpu 10 layers (38 % of the time), …" on
 * stderr.
 */
void reply_report(const struct session *session, const struct reply *reply);

const char *finish_reason_name(enum finish_reason reason); /* "stop", "length", "cancelled", "error" */

/* Ctrl-C, from the first call on: whether it came since the last interrupts_clear(). A second one ends the process. */
void interrupts_catch(void);
unsigned interrupts(void); /* 0 or 1 */
void interrupts_clear(void);
