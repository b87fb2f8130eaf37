/* turns: what checkpoints of states spare in a chat whose turns change former text.
 *
 *   turns MODEL.gguf... [--turns 8] [--threads 1]
 *
 * For each model one chat, twice: with checkpoints and without, in turn, on two drivers of one
 * process. A system prompt of 400 tokens; a turn asks with 60, gets 48, of which the next prompt
 * has the last 16 (a template that leaves out what was thought). Each turn is asked a second time
 * ("regenerate"). The answers must be the same. Printed: the time of all prompts but the first,
 * from being given a slot to the first token, and how many of their tokens were computed. */
#include "gpu/gpu.h"
#include "model/model.h"
#include "pipeline/driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 4096, SYSTEM = 400, QUESTION = 60, ANSWER = 48, KEPT = 16, WAYS = 2 };

struct turn {
    int32_t tokens[ANSWER];
    uint32_t n_tokens;
    struct request_usage usage;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool done;
};

static uint32_t n_turns = 8, n_threads = 1;

static void turns_fail(const char *what, const char *why)
{
    fprintf(stderr, "turns: %s: %s\n", what, why);
    exit(1);
}

static bool turn_token(void *arg, const struct token_event *event)
{
    struct turn *turn = arg;
    turn->tokens[turn->n_tokens++] = event->token;
    return true;
}

static void turn_done(void *arg, enum finish_reason reason, const struct request_usage *usage,
                      const struct error *err)
{
    struct turn *turn = arg;
    if (reason != FINISH_LENGTH)
        turns_fail("a turn", err ? err->text : "ended early");
    pthread_mutex_lock(&turn->lock);
    turn->usage = *usage;
    turn->done = true;
    pthread_cond_signal(&turn->ended);
    pthread_mutex_unlock(&turn->lock);
}

static void turn_ask(struct driver *driver, const int32_t *text, uint32_t n, struct turn *turn)
{
    struct error err;
    struct request request = {.prompt = text,
                              .n_prompt = n,
                              .n_predict = ANSWER,
                              .sampler = sampler_defaults(),
                              .handlers = {.token = turn_token, .done = turn_done},
                              .arg = turn};
    request.sampler.temperature = 0;
    *turn = (struct turn){.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};
    if (driver_submit(driver, &request, NULL, &err))
        turns_fail("submit", err.text);
    pthread_mutex_lock(&turn->lock);
    while (!turn->done)
        pthread_cond_wait(&turn->ended, &turn->lock);
    pthread_mutex_unlock(&turn->lock);
}

static uint32_t turns_say(int32_t *text, uint32_t n, uint32_t more, uint32_t seed, uint32_t n_vocab)
{
    for (uint32_t i = 0; i < more; i++)
        text[n++] = (int32_t)((i * 7919 + seed * 104729 + 3) % n_vocab);
    return n;
}

struct turns_figures {
    double prompts_s[WAYS];
    uint64_t computed[WAYS], n_prompt;
};

/* Both drivers; the first prompt is computed by both and not counted. */
static void turns_both(struct driver *const drivers[WAYS], const int32_t *text, uint32_t n,
                       bool counts, struct turn turns[WAYS], struct turns_figures *figures)
{
    for (int way = 0; way < WAYS; way++) {
        turn_ask(drivers[way], text, n, &turns[way]);
        if (!counts)
            continue;
        figures->prompts_s[way] += (double)turns[way].usage.prefill_ns * 1e-9;
        figures->computed[way] += n - turns[way].usage.cached_tokens;
    }
    figures->n_prompt += counts ? n : 0;
    if (memcmp(turns[0].tokens, turns[1].tokens, sizeof turns[0].tokens) != 0)
        turns_fail("answers", "with checkpoints they are others");
}

static void turns_chat(struct driver *const drivers[WAYS], uint32_t n_vocab,
                       struct turns_figures *out)
{
    static int32_t text[CONTEXT];
    struct turn turns[WAYS];
    uint32_t n = turns_say(text, 0, SYSTEM, 1, n_vocab);
    for (uint32_t i = 0; i < n_turns; i++) {
        n = turns_say(text, n, QUESTION, i + 2, n_vocab);
        turns_both(drivers, text, n, i > 0, turns, out);
        turns_both(drivers, text, n, true, turns, out);
        memcpy(text + n, turns[0].tokens + ANSWER - KEPT, KEPT * sizeof *text);
        n += KEPT;
    }
}

static void turns_of(struct gpu *gpu, const char *path)
{
    struct error err;
    struct model *model;
    struct driver *drivers[WAYS];
    struct turns_figures figures = {0};
    if (model_open(path, &model, &err))
        turns_fail(path, err.text);
    const struct stage_plan plan = {gpu_find(gpu, "cpu"), model_hyperparameters(model)->n_layers};
    for (int way = 0; way < WAYS; way++) {
        const struct driver_options options = {
            .context = CONTEXT, .checkpoints = 6, .no_checkpoints = way == 1};
        if (driver_open(model, &plan, 1, &options, &drivers[way], &err))
            turns_fail(path, err.text);
    }
    turns_chat(drivers, model_hyperparameters(model)->n_vocab, &figures);
    const char *name = strrchr(path, '/');
    printf(
        "%-22s prompts of %llu tokens: %7.3f s, %6llu computed; without %7.3f s, %6llu; %.2f x\n",
        name ? name + 1 : path, (unsigned long long)figures.n_prompt, figures.prompts_s[0],
        (unsigned long long)figures.computed[0], figures.prompts_s[1],
        (unsigned long long)figures.computed[1], figures.prompts_s[1] / figures.prompts_s[0]);
    for (int way = 0; way < WAYS; way++)
        driver_close(drivers[way]);
    model_close(model);
}

int main(int argc, char **argv)
{
    struct gpu *gpu;
    struct error err;
    int at = 1;
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], "--turns") == 0)
            n_turns = (uint32_t)atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--threads") == 0)
            n_threads = (uint32_t)atoi(argv[i + 1]);
    }
    if (argc < 2 || !n_turns || n_turns > 40 || !n_threads)
        turns_fail("usage", "turns MODEL.gguf... [--turns 1-40] [--threads N]");
    if (gpu_open(&(struct gpu_options){.n_cpu_threads = n_threads, .skip_other = true}, &gpu, &err))
        turns_fail("gpu", err.text);
    for (; at < argc && argv[at][0] != '-'; at++)
        turns_of(gpu, argv[at]);
    gpu_close(gpu);
    return 0;
}
