/* One request, waited for: the generator's callbacks leave tokens here and the command's thread
 * takes them, so that a slow terminal never holds up a device. */
#pragma once

#include "request/generator.h"

#include <pthread.h>

struct generation {
    struct generator *generator;
    uint64_t id;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int32_t *tokens; /* all so far; room for the context */
    uint32_t n_tokens, n_taken;
    bool done;

    /* valid once generation_next() has returned GENERATION_END */
    enum finish_reason reason;
    struct request_usage usage;
    struct error error;
};

/* Submits the request; its handlers and `arg` are set here. On failure there is nothing to
 * finish. */
enum error_code generation_start(struct generation *generation, struct generator *generator,
                                 const struct request *request, struct error *err);
void generation_finish(
    struct generation *generation); /* cancels what is left, waits for the end, frees */

enum generation_result { GENERATION_TOKEN, GENERATION_END, GENERATION_TIMEOUT };
/* The next token, waiting at most `timeout_ms` for it. */
enum generation_result generation_next(struct generation *generation, uint32_t timeout_ms,
                                       int32_t *token);
void generation_wait(struct generation *generation); /* to its end */
