#include "replies.h"

#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void replies_fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

void replies_read_options(int argc, char **argv, int first, const struct replies_option *options,
                          uint32_t n_options, const char *usage)
{
    if (argc < first || (argc - first) % 2)
        replies_fail("usage", usage);
    for (int i = first; i < argc; i += 2) {
        const unsigned long n = strtoul(argv[i + 1], NULL, 10);
        uint32_t k = 0;
        while (k < n_options && strcmp(argv[i], options[k].name) != 0)
            k++;
        if (k == n_options || n < options[k].least || n > options[k].most)
            replies_fail(argv[i], "no such option, or its value is out of range");
        *options[k].value = (uint32_t)n;
    }
}

static double processor_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool on_token(void *arg, const struct token_event *event)
{
    struct reply *reply = arg;
    if (!reply->n_tokens)
        reply->processor_at_first_s = processor_s();
    reply->tokens[reply->n_tokens++] = event->token;
    return true;
}

static void on_done(void *arg, enum finish_reason reason, const struct request_usage *usage,
                    const struct error *err)
{
    struct reply *reply = arg;
    if (reason == FINISH_ERROR)
        replies_fail("a request", err->text);
    reply->processor_s = processor_s() - reply->processor_at_first_s;
    reply->decode_s = (double)usage->decode_ns * 1e-9;
    reply->usage = *usage;
    pthread_mutex_lock(&reply->lock);
    reply->done = true;
    pthread_cond_signal(&reply->ended);
    pthread_mutex_unlock(&reply->lock);
}

void replies_answer(struct driver *driver, const int32_t *prompt, uint32_t n_prompt,
                    uint32_t n_predict, float temperature, uint64_t seed, struct reply *reply)
{
    struct error err = {0};
    *reply = (struct reply){.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};
    struct request request = {.prompt = prompt,
                              .n_prompt = n_prompt,
                              .n_predict = n_predict,
                              .sampler = sampler_defaults(),
                              .handlers = {.token = on_token, .done = on_done},
                              .arg = reply};
    request.sampler.temperature = temperature;
    request.sampler.seed = seed;
    if (temperature > 1) { /* of all tokens */
        request.sampler.top_k = 0;
        request.sampler.top_p = 1;
        request.sampler.min_p = 0;
    }
    if (driver_submit(driver, &request, NULL, &err))
        replies_fail("submit", err.text);
    pthread_mutex_lock(&reply->lock);
    while (!reply->done)
        pthread_cond_wait(&reply->ended, &reply->lock);
    pthread_mutex_unlock(&reply->lock);
}

void replies_must_be_same(const struct reply *a, const struct reply *b)
{
    if (a->n_tokens != b->n_tokens ||
        memcmp(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens) != 0)
        replies_fail("a reply", "it is another with guesses");
}

struct driver *replies_open_driver(const struct model *model, struct device *device,
                                   const struct driver_options *options)
{
    const struct stage_plan plan = {.device = device,
                                    .n_layers = model_hyperparameters(model)->n_layers};
    struct driver *driver = NULL;
    struct error err = {0};
    if (driver_open(model, &plan, 1, options, &driver, &err))
        replies_fail("open", err.text);
    return driver;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double replies_median(double *values, uint32_t n)
{
    qsort(values, n, sizeof *values, by_value);
    return values[n / 2];
}

double replies_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
