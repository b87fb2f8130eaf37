#include "cli/generation.h"

#include "base/mem.h"

#include <time.h>

static bool generation_on_token(void *arg, const struct token_event *event)
{
    struct generation *generation = arg;
    pthread_mutex_lock(&generation->lock);
    generation->tokens[generation->n_tokens++] = event->token;
    pthread_cond_signal(&generation->changed);
    pthread_mutex_unlock(&generation->lock);
    return true;
}

static void generation_on_done(void *arg, enum finish_reason reason,
                               const struct request_usage *usage, const struct error *err)
{
    struct generation *generation = arg;
    pthread_mutex_lock(&generation->lock);
    generation->done = true;
    generation->reason = reason;
    generation->usage = *usage;
    if (err)
        generation->error = *err;
    pthread_cond_signal(&generation->changed);
    pthread_mutex_unlock(&generation->lock);
}

enum error_code generation_start(struct generation *generation, struct generator *generator,
                                 const struct request *request, struct error *err)
{
    *generation = (struct generation){.generator = generator};
    generation->tokens = mem_new_array(generator_context(generator), sizeof *generation->tokens);
    if (!generation->tokens)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the answer");
    pthread_mutex_init(&generation->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&generation->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    struct request own = *request;
    own.handlers.token = generation_on_token;
    own.handlers.done = generation_on_done;
    own.arg = generation;
    enum error_code code = generator_submit(generator, &own, &generation->id, err);
    if (code) {
        generation->done = true;
        generation_finish(generation);
    }
    return code;
}

void generation_wait(struct generation *generation)
{
    pthread_mutex_lock(&generation->lock);
    while (!generation->done)
        pthread_cond_wait(&generation->changed, &generation->lock);
    pthread_mutex_unlock(&generation->lock);
}

void generation_finish(struct generation *generation)
{
    generator_cancel(generation->generator, generation->id);
    generation_wait(generation);
    pthread_cond_destroy(&generation->changed);
    pthread_mutex_destroy(&generation->lock);
    mem_free(generation->tokens);
    generation->tokens = NULL;
}

enum generation_result generation_next(struct generation *generation, uint32_t timeout_ms,
                                       int32_t *token)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + (uint64_t)timeout_ms * 1000000;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    int timed_out = 0;
    pthread_mutex_lock(&generation->lock);
    while (!generation->done && generation->n_taken == generation->n_tokens && !timed_out)
        timed_out = pthread_cond_timedwait(&generation->changed, &generation->lock, &until);
    enum generation_result result = GENERATION_TIMEOUT;
    if (generation->n_taken < generation->n_tokens) {
        *token = generation->tokens[generation->n_taken++];
        result = GENERATION_TOKEN;
    } else if (generation->done) {
        result = GENERATION_END;
    }
    pthread_mutex_unlock(&generation->lock);
    return result;
}
