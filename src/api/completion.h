/* One request of /v1/completions or /v1/chat/completions, from its JSON to its answer.
 *
 * Steps: parse, ask for the model (loop) → render and tokenise (preparer's thread) → submit, one
 * driver request for each choice (loop) → tokens (driver's thread, through the inbox) → text,
 * chunks, answer (loop).
 *
 * It holds on to the exchange until the answer is complete or the client is gone, and lives until
 * the preparer and the driver have both let go of it. Private to the api room. */
#pragma once

#include "api/choice.h"
#include "api/internal.h"
#include "api/model_use.h"
#include "api/preparer.h"
#include "api/resume.h"

struct completion_choice {
    struct inbox_item item; /* in the driver between submit and done */
    struct completion *completion;
    uint32_t index, prompt;
    uint64_t driver_id;
    bool running; /* the driver has it */
    struct choice text;
    struct buffer whole; /* of an answer that is not streamed */
    const char *finish_reason;
    struct stream_position position; /* of a stream */
    struct stream_position before;   /* what the client has had; no events: nothing */
    uint64_t last_token_ns;
};

struct completion {
    struct api_server *server;
    struct exchange *exchange; /* NULL: answered, or the client is gone */
    struct generation_request request;
    struct model_use use;
    struct preparer_job job;
    bool preparing;       /* the model is open, and the preparer has the request */
    struct api_error err; /* of the preparation */
    char id[48];
    uint64_t created;
    uint64_t started_ns;
    bool any_token;
    bool busy; /* a function up the stack uses it: do not free */
    struct token_list *prompts;
    struct completion_choice *choices;
    uint32_t n_choices, n_running;
    struct token_batch batch;
    struct buffer out, json, event_id; /* scratch */
};

/* completion_prepare.c: the preparer's thread. */
void completion_prepare(struct preparer_job *job);

/* completion_answer.c: what goes to the client. */
void completion_begin_answer(struct completion *completion);
void completion_take_tokens(struct completion_choice *choice, const struct token_batch *batch);
void completion_end_choice(struct completion_choice *choice);
void completion_end_answer(struct completion *completion);
void completion_fail(struct completion *completion, const struct api_error *err);
void completion_cancel_choice(struct completion_choice *choice);
