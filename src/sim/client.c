/* Clients: streams of requests to a node, and what they are answered. Every token is compared with
 * the reference. What becomes of a request in between is the relay's (seat.c). */
#include "sim/world.h"

#include "base/limits.h"
#include "base/mem.h"
#include "base/random.h"

#include <assert.h>

/* ---- the reference ---- */

uint64_t reference_fold(uint64_t hash, uint64_t token)
{
    return random_mix(hash ^ token);
}

uint64_t reference_token(uint64_t hash, uint64_t position)
{
    return random_mix(hash ^ random_mix(~position)) % LIMIT_VOCAB;
}

/* ---- one request ---- */

static void client_free(struct client *client)
{
    mem_free(client->prompt);
    mem_free(client);
}

static struct client *client_new(struct world *w, struct node *node, uint32_t index)
{
    const struct scenario_stream *stream = &w->scenario->streams[index];
    struct client *client = mem_new(sizeof *client);
    if (client)
        client->prompt = mem_new_array(stream->prompt, sizeof *client->prompt);
    if (!client || !client->prompt) {
        w->out_of_memory = true;
        mem_free(client);
        return NULL;
    }
    client->w = w;
    client->node = node;
    client->request = ++w->n_requests;
    client->stream = index;
    client->n_tokens = (uint32_t)stream->prompt;
    client->heard_ms = w->now_ms;
    for (uint32_t i = 0; i < client->n_tokens; i++) {
        client->prompt[i] = (int32_t)(random_at(client->request, i) % LIMIT_VOCAB);
        client->reference = reference_fold(client->reference, (uint32_t)client->prompt[i]);
    }
    return client;
}

static void client_end(struct client *client, bool answered)
{
    struct world *w = client->w;
    const struct scenario_stream *stream = &w->scenario->streams[client->stream];
    struct client **link = &client->node->clients;
    *(answered ? &w->result->answered : &w->result->failed) += 1;
    assert(w->open_requests);
    w->open_requests--;
    if (w->stream_left[client->stream])
        world_push(w, (struct event){.at_ms = w->now_ms + stream->pause_ms + 1,
                                     .type = EVENT_STREAM,
                                     .node = (uint32_t)stream->node,
                                     .other = client->stream});
    while (*link != client)
        link = &(*link)->next;
    *link = client->next;
    client_free(client);
}

static bool on_client_token(void *arg, const struct token_event *event)
{
    struct client *client = arg;
    struct world *w = client->w;
    assert(client->n_tokens == w->scenario->streams[client->stream].prompt + client->got);
    const uint64_t expected = reference_token(client->reference, client->n_tokens);
    if (event->index != client->got) {
        world_violated(w, "%s: request %llu gets token %u, it has %u", client->node->name,
                       (unsigned long long)client->request, event->index, client->got);
        return false;
    }
    if ((uint64_t)event->token != expected && !client->is_tainted) {
        world_violated(w, "%s: token %u of request %llu is not the reference's", client->node->name,
                       client->got, (unsigned long long)client->request);
        return false;
    }
    const uint64_t pause = w->now_ms - client->heard_ms;
    if (client->got && pause > w->result->longest_pause_ms)
        w->result->longest_pause_ms = pause;
    client->heard_ms = w->token_ms = w->now_ms;
    client->reference = reference_fold(client->reference, (uint32_t)event->token);
    client->n_tokens++;
    client->got++;
    w->result->tokens++;
    return true;
}

static void on_client_done(void *arg, enum finish_reason reason, const struct request_usage *usage,
                           const struct error *err)
{
    struct client *client = arg;
    struct world *w = client->w;
    const uint64_t wanted = w->scenario->streams[client->stream].tokens;
    assert((reason == FINISH_ERROR) == (err != NULL));
    if (reason == FINISH_LENGTH && !client->is_tainted &&
        (client->got != wanted || usage->generated_tokens != wanted))
        world_violated(w, "%s: request %llu ends with %u of %llu tokens", client->node->name,
                       (unsigned long long)client->request, client->got,
                       (unsigned long long)wanted);
    if (err)
        world_say(w, "%s: request %llu fails: %s", client->node->name,
                  (unsigned long long)client->request, err->text);
    client_end(client, reason == FINISH_LENGTH);
}

/* The sampler's seed travels with a request, so it tells drivers and checks whose it is. */
void client_begin(struct world *w, struct node *node, uint32_t index)
{
    const struct scenario_stream *stream = &w->scenario->streams[index];
    assert(node->up && w->stream_left[index]);
    struct client *client = client_new(w, node, index);
    if (!client)
        return;
    struct request request = {.prompt = client->prompt,
                              .n_prompt = client->n_tokens,
                              .n_predict = (uint32_t)stream->tokens,
                              .sampler = sampler_defaults(),
                              .handlers = {on_client_token, NULL, on_client_done},
                              .arg = client};
    request.sampler.seed = client->request;
    client->next = node->clients;
    node->clients = client;
    w->stream_left[index]--;
    w->open_requests++;
    w->result->requests++;
    node->changed = true;
    if (!seat_submit(w, node, (uint32_t)stream->instance, &request))
        client_end(client, false);
}

const struct client *client_find(const struct world *w, uint64_t request)
{
    for (uint32_t i = 0; i < w->n; i++) {
        for (const struct client *client = w->nodes[i].clients; client; client = client->next) {
            if (client->request == request)
                return client;
        }
    }
    return NULL;
}

/* What a hostile node computes, or decides as its driver, may be wrong. */
void client_taint(struct world *w, uint64_t request)
{
    struct client *client = (struct client *)(uintptr_t)client_find(w, request);
    if (client)
        client->is_tainted = true;
}

/* Who asked sees a broken connection. */
void client_drop_all(struct node *node)
{
    while (node->clients)
        client_end(node->clients, false);
}
