#include "driver_world.h"

#include "base/random.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

void world_open(struct world *world, uint32_t n_stages, uint32_t n_devices,
                const struct driver_options *options)
{
    *world = (struct world){.n_devices = n_devices};
    struct stage_plan plan[FAKE_LAYERS];
    for (uint32_t i = 0; i < n_devices; i++) {
        char id[16];
        snprintf(id, sizeof id, "toy%u", i);
        world->devices[i] = fake_device_open(id, 1000000, 0);
    }
    uint32_t left = FAKE_LAYERS;
    for (uint32_t i = 0; i < n_stages; i++) {
        uint32_t n_layers = i + 1 == n_stages ? left : FAKE_LAYERS / n_stages;
        plan[i] = (struct stage_plan){world->devices[i % n_devices], n_layers};
        left -= n_layers;
    }
    struct error err = {0};
    if (driver_open(fake_model(), plan, n_stages, options, &world->driver, &err))
        fail_msg("driver_open: %s", err.text);
}

void world_close(struct world *world)
{
    driver_close(world->driver);
    for (uint32_t i = 0; i < world->n_devices; i++)
        fake_device_close(world->devices[i]);
    assert_int_equal(fake_stages_open(), 0);
}

static bool on_token(void *arg, const struct token_event *event)
{
    struct client *client = arg;
    pthread_mutex_lock(&lock);
    if (event->index == client->n_tokens && client->n_tokens < CLIENT_TOKENS) {
        client->tokens[client->n_tokens] = event->token;
        client->logprobs[client->n_tokens++] = event->logprob;
    }
    bool go_on = !client->stop_after || client->n_tokens < client->stop_after;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return go_on;
}

static void on_row(void *arg, uint32_t position, const float *values, uint32_t n_values)
{
    struct client *client = arg;
    float expected[FAKE_VOCAB];
    int32_t tokens[2 * CLIENT_TOKENS];
    uint32_t n_prompt = client->request.n_prompt;
    memcpy(tokens, client->prompt, n_prompt * sizeof *tokens);
    memcpy(tokens + n_prompt, client->tokens, client->n_tokens * sizeof *tokens);
    uint32_t width = client->request.embeddings ? FAKE_EMBD : FAKE_VOCAB;
    if (client->request.embeddings)
        fake_hidden(tokens, position + 1, expected);
    else
        fake_logits(tokens, position + 1, expected);
    bool good = position == client->n_rows && position < n_prompt + client->n_tokens &&
                n_values == width && memcmp(values, expected, width * sizeof *values) == 0;
    client->n_bad_rows += !good;
    client->n_rows++;
}

static void on_done(void *arg, enum finish_reason reason, const struct request_usage *usage,
                    const struct error *err)
{
    struct client *client = arg;
    pthread_mutex_lock(&lock);
    client->n_done++;
    client->reason = reason;
    client->usage = *usage;
    if (err)
        client->error = *err;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void client_init(struct client *client, uint64_t seed, uint32_t n_prompt, uint32_t n_predict)
{
    *client = (struct client){0};
    assert_in_range(n_prompt, 0, CLIENT_TOKENS);
    for (uint32_t i = 0; i < n_prompt; i++)
        client->prompt[i] = (int32_t)(random_at(seed, i) % FAKE_VOCAB);
    client->request = (struct request){
        .n_prompt = n_prompt,
        .n_predict = n_predict,
        .sampler = sampler_defaults(),
        .handlers = {.token = on_token, .row = on_row, .done = on_done},
    };
    client->request.sampler.temperature = 0;
}

enum error_code client_submit(struct client *client, struct world *world, struct error *err)
{
    client->request.prompt = client->prompt;
    client->request.arg = client;
    uint64_t id = 0;
    enum error_code code = driver_submit(world->driver, &client->request, &id, err);
    client->id = id;
    return code;
}

static bool wait_for(const struct client *client, uint32_t n_tokens, bool or_done)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    int timed_out = 0;
    pthread_mutex_lock(&lock);
    while (!timed_out && !client->n_done && !(or_done && client->n_tokens >= n_tokens))
        timed_out = pthread_cond_timedwait(&changed, &lock, &until);
    bool reached = client->n_tokens >= n_tokens;
    pthread_mutex_unlock(&lock);
    if (timed_out)
        fail_msg("request %llu does not end", (unsigned long long)client->id);
    return reached;
}

void client_wait(const struct client *client)
{
    wait_for(client, 0, false);
}

bool client_wait_tokens(const struct client *client, uint32_t n_tokens)
{
    return wait_for(client, n_tokens, true);
}

bool client_is_done(const struct client *client)
{
    pthread_mutex_lock(&lock);
    bool done = client->n_done != 0;
    pthread_mutex_unlock(&lock);
    return done;
}

bool client_has_tokens(const struct client *client, uint32_t n_tokens)
{
    pthread_mutex_lock(&lock);
    bool has = client->n_tokens >= n_tokens;
    pthread_mutex_unlock(&lock);
    return has;
}

uint32_t client_tokens(const struct client *client)
{
    pthread_mutex_lock(&lock);
    uint32_t n_tokens = client->n_tokens;
    pthread_mutex_unlock(&lock);
    return n_tokens;
}

static bool is_stop(const struct request *request, int32_t token)
{
    for (uint32_t i = 0; i < request->n_stop_tokens; i++) {
        if (request->stop_tokens[i] == token)
            return true;
    }
    return false;
}

uint32_t client_expected(const struct client *client, uint32_t context, int32_t *tokens)
{
    const struct request *request = &client->request;
    int32_t history[2 * CLIENT_TOKENS];
    memcpy(history, client->prompt, request->n_prompt * sizeof *history);
    struct sampler *sampler = NULL;
    assert_int_equal(sampler_new(FAKE_VOCAB, &sampler, NULL), ERROR_NONE);
    uint32_t n = 0, position = request->n_prompt;
    while (n < request->n_predict && position < context && n < CLIENT_TOKENS) {
        float logits[FAKE_VOCAB];
        fake_logits(history, position, logits);
        int32_t token =
            sampler_pick(sampler, &request->sampler, logits, history, position, position);
        if (is_stop(request, token))
            break;
        tokens[n++] = history[position++] = token;
        if (n == client->stop_after)
            break;
    }
    sampler_free(sampler);
    return n;
}

void client_check(const struct client *client, uint32_t context)
{
    int32_t expected[CLIENT_TOKENS];
    uint32_t n = client_expected(client, context, expected);
    assert_int_equal(client->n_done, 1);
    assert_in_range(client->n_tokens, 0, n);
    assert_memory_equal(client->tokens, expected, client->n_tokens * sizeof *expected);
    assert_int_equal(client->n_bad_rows, 0);
    assert_int_equal(client->usage.generated_tokens, client->n_tokens);
    assert_int_equal(client->usage.prompt_tokens, client->request.n_prompt);
    if (client->reason == FINISH_CANCELLED || client->reason == FINISH_ERROR)
        return;
    assert_int_equal(client->n_tokens, n);
    bool full = n == client->request.n_predict || client->request.n_prompt + n == context;
    if (client->reason == FINISH_LENGTH)
        assert_true(full);
    else
        assert_true(client->stop_after || client->request.n_stop_tokens);
    if (client->request.embeddings)
        assert_int_equal(client->n_rows, client->request.n_prompt);
    if (client->request.want_all_logits && client->reason == FINISH_LENGTH)
        assert_int_equal(client->n_rows, client->request.n_prompt + n);
}
