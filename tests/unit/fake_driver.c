#include "fake_driver.h"

#include "pipeline/driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RUNNING_MAX = 4096 };

struct sequence {
    struct sequence *next;
    struct request request;
    int32_t *prompt;
    uint64_t id;
    uint32_t n_generated;
    bool running;
    atomic_bool cancelled;
};

struct driver {
    struct driver_options options;
    atomic_uint token_us;
    pthread_t thread;
    pthread_mutex_t lock;
    struct sequence *sequences; /* oldest first */
    struct sequence *round[RUNNING_MAX];
    uint64_t n_submitted, n_generated;
    bool closing;
};

static uint32_t count(struct driver *driver, bool running)
{
    uint32_t n = 0;
    for (struct sequence *at = driver->sequences; at; at = at->next)
        n += at->running == running;
    return n;
}

/* The prompt without its BOS, again and again. */
static int32_t next_token(const struct sequence *sequence)
{
    uint32_t skip = sequence->prompt[0] == FAKE_BOS;
    uint32_t n = sequence->request.n_prompt - skip;
    if (n == 0 || (sequence->n_generated >= n && sequence->prompt[skip] != '!'))
        return FAKE_EOS;
    return sequence->prompt[skip + sequence->n_generated % n];
}

static void embed(const struct sequence *sequence)
{
    for (uint32_t i = 0; i < sequence->request.n_prompt; i++) {
        float values[FAKE_EMBD] = {(float)sequence->prompt[i], 1, 0, -1};
        sequence->request.handlers.row(sequence->request.arg, i, values, FAKE_EMBD);
    }
}

/* After token t the token t + 1 is certain, all others impossible. */
static void score(const struct sequence *sequence)
{
    static _Thread_local float logits[FAKE_VOCAB];
    for (uint32_t i = 0; i < sequence->request.n_prompt; i++) {
        for (int32_t id = 0; id < FAKE_VOCAB; id++)
            logits[id] = id == sequence->prompt[i] + 1 ? 0 : -1000;
        sequence->request.handlers.row(sequence->request.arg, i, logits, FAKE_VOCAB);
    }
}

/* One token; true: the sequence is over. */
static bool step(struct sequence *sequence, enum finish_reason *reason)
{
    const struct request *request = &sequence->request;
    *reason = FINISH_CANCELLED;
    if (sequence->cancelled)
        return true;
    if (request->embeddings)
        embed(sequence);
    if (request->want_all_logits && !sequence->n_generated)
        score(sequence);
    *reason = FINISH_LENGTH;
    if (sequence->n_generated >= request->n_predict)
        return true;
    *reason = FINISH_STOP;
    int32_t token = next_token(sequence);
    if (token == FAKE_EOS)
        return true;
    struct token_logprob top[3] = {{token, -0.25f}, {'x', -1.5f}, {'y', -2.5f}};
    struct token_event event = {
        .token = token, .index = sequence->n_generated++, .logprob = -0.25f, .top = top};
    event.n_top = request->n_top_logprobs < 3 ? request->n_top_logprobs : 3;
    if (!request->handlers.token(request->arg, &event))
        return true;
    *reason = FINISH_LENGTH;
    return sequence->n_generated >= request->n_predict;
}

static void end(struct driver *driver, struct sequence *sequence, enum finish_reason reason)
{
    struct request_usage usage = {.prompt_tokens = sequence->request.n_prompt,
                                  .cached_tokens = 1,
                                  .generated_tokens = sequence->n_generated};
    pthread_mutex_lock(&driver->lock);
    struct sequence **link = &driver->sequences;
    while (*link != sequence)
        link = &(*link)->next;
    *link = sequence->next;
    pthread_mutex_unlock(&driver->lock);
    sequence->request.handlers.done(sequence->request.arg, reason, &usage, NULL);
    free(sequence->prompt);
    free(sequence);
}

/* Chooses who runs in this round. */
static uint32_t admit(struct driver *driver, struct sequence **round)
{
    uint32_t n = 0;
    pthread_mutex_lock(&driver->lock);
    uint32_t running = count(driver, true);
    for (struct sequence *at = driver->sequences; at && n < RUNNING_MAX; at = at->next) {
        if (!at->running && !at->cancelled && running < driver->options.n_slots) {
            at->running = true;
            running++;
        }
        if (at->running || at->cancelled)
            round[n++] = at;
    }
    pthread_mutex_unlock(&driver->lock);
    return n;
}

static void *work(void *arg)
{
    struct driver *driver = arg;
    struct sequence **round = driver->round;
    for (;;) {
        uint32_t n = admit(driver, round);
        for (uint32_t i = 0; i < n; i++) {
            enum finish_reason reason;
            driver->n_generated++;
            if (step(round[i], &reason))
                end(driver, round[i], reason);
        }
        pthread_mutex_lock(&driver->lock);
        bool over = driver->closing && !driver->sequences;
        pthread_mutex_unlock(&driver->lock);
        if (over)
            return NULL;
        usleep(driver->token_us);
    }
}

struct driver *fake_driver_open(struct fake_driver_options options)
{
    struct driver *driver = calloc(1, sizeof *driver);
    driver->options = (struct driver_options){
        .n_slots = options.n_slots, .queue_max = options.queue_max, .context = options.context};
    driver->token_us = options.token_us;
    pthread_mutex_init(&driver->lock, NULL);
    pthread_create(&driver->thread, NULL, work, driver);
    return driver;
}

void fake_driver_slow(struct driver *driver, uint32_t token_us)
{
    driver->token_us = token_us;
}

void driver_close(struct driver *driver)
{
    pthread_mutex_lock(&driver->lock);
    driver->closing = true;
    for (struct sequence *at = driver->sequences; at; at = at->next)
        at->cancelled = true;
    pthread_mutex_unlock(&driver->lock);
    pthread_join(driver->thread, NULL);
    pthread_mutex_destroy(&driver->lock);
    free(driver);
}

const struct driver_options *driver_options(const struct driver *driver)
{
    return &driver->options;
}

enum error_code driver_submit(struct driver *driver, const struct request *request, uint64_t *id,
                              struct error *err)
{
    struct sequence *sequence = calloc(1, sizeof *sequence);
    sequence->request = *request;
    sequence->prompt = malloc(request->n_prompt * sizeof *request->prompt);
    memcpy(sequence->prompt, request->prompt, request->n_prompt * sizeof *request->prompt);
    pthread_mutex_lock(&driver->lock);
    bool full = count(driver, false) >= driver->options.queue_max;
    if (!full) {
        struct sequence **link = &driver->sequences;
        while (*link)
            link = &(*link)->next;
        *link = sequence;
        *id = sequence->id = ++driver->n_submitted;
    }
    pthread_mutex_unlock(&driver->lock);
    if (!full)
        return ERROR_NONE;
    free(sequence->prompt);
    free(sequence);
    return error_set(err, ERROR_BUSY, "the queue is full (%u wait)", driver->options.queue_max);
}

void driver_cancel(struct driver *driver, uint64_t id)
{
    pthread_mutex_lock(&driver->lock);
    for (struct sequence *at = driver->sequences; at; at = at->next) {
        if (at->id == id)
            at->cancelled = true;
    }
    pthread_mutex_unlock(&driver->lock);
}

struct driver_stats driver_stats(const struct driver *driver)
{
    struct driver *open = (struct driver *)(uintptr_t)driver;
    pthread_mutex_lock(&open->lock);
    struct driver_stats stats = {.slots_total = driver->options.n_slots,
                                 .slots_busy = count(open, true),
                                 .queued = count(open, false),
                                 .requests_total = driver->n_submitted};
    pthread_mutex_unlock(&open->lock);
    return stats;
}
