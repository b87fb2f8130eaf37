/* Stages that compute for a driver: each has a hash of what it has seen of a sequence, as it would
 * have its KV cache.
 */
#include "sim/world.h"

#include "base/mem.h"
#include "base/random.h"

#include <assert.h>
#include <string.h>

enum { LIES_PPM = 20000 }; /* of a hostile node's results */

/* The slot, cut to where the step begins. NULL: it lacks what stands before. */
static struct cached *stage_slot(struct world *w, struct hosted *h, const struct message *m)
{
    struct cached *cached = kept_slot(h, m->slot);
    w->out_of_memory |= !cached;
    if (!cached || m->position > cached->n)
        return NULL;
    assert(h->state == WORKER_READY && m->round >= cached->round);
    cached->n = (uint32_t)m->position;
    cached->round = m->round;
    return cached;
}

/* A device computes in order; here a long step may end after a short one that came later, for
 * another request in the same slot. */
static bool stage_is_late(const struct hosted *h, const struct message *m)
{
    return m->slot < h->n_cached && m->round < h->cached[m->slot].round;
}

static uint64_t stage_compute(struct world *w, struct cached *cached, const struct message *m)
{
    assert(cached->n == m->position && m->n_tokens);
    uint64_t hash = cached->n ? cached->rows[cached->n - 1] : 0;
    for (uint32_t i = 0; i < m->n_tokens; i++) {
        hash = reference_fold(hash, m->tokens[i]);
        w->out_of_memory |= !kept_append(cached, hash);
    }
    return hash;
}

static uint64_t stage_work_ms(const struct world *w, const struct node *node,
                              const struct hosted *h, uint32_t n_tokens)
{
    const uint64_t ms = (h->bytes >> 20) / w->scenario->nodes[node->index].gb_per_s;
    return 1 + ms + n_tokens / 64;
}

/* The stage has computed; on to the next. */
static void stage_pass_on(struct world *w, struct node *node, const struct hosted *h,
                          const struct message *m)
{
    assert(h->stage == m->stage && m->stage < h->n_route);
    const bool last = m->stage + 1 == h->n_route;
    const uint32_t to = h->route[last ? 0 : m->stage + 1];
    struct message *next = message_new(last ? MESSAGE_RESULT : MESSAGE_STEP, node, to);
    if (next) {
        const uint32_t from = next->from;
        *next = *m;
        next->kind = last ? MESSAGE_RESULT : MESSAGE_STEP;
        next->from = from;
        next->to = to;
        next->stage = m->stage + 1;
        next->bytes = NULL;
        next->tokens = mem_new_array(m->n_tokens + 1, sizeof *next->tokens);
        if (next->tokens)
            memcpy(next->tokens, m->tokens, m->n_tokens * sizeof *m->tokens);
        w->out_of_memory |= !next->tokens;
    }
    if (!net_send_link(w, next))
        serve_link_down(w, node, to);
}

void stage_step(struct world *w, struct node *node, const struct message *m)
{
    struct hosted *h = host_find(node, m->instance, m->epoch, m->stage);
    const bool serves = h && h->state == WORKER_READY;
    if (serves)
        kept_used(w, node, h);
    if (serves && stage_is_late(h, m))
        return;
    struct cached *cached = serves ? stage_slot(w, h, m) : NULL;
    if (!cached) {
        if (serves)
            serve_broken(w, node, h);
        else
            serve_stray(w, node, m);
        return;
    }
    const uint64_t hash = stage_compute(w, cached, m);
    struct message *done = message_new(MESSAGE_STEP, node, node->index);
    if (!done) {
        w->out_of_memory = true;
        return;
    }
    *done = *m;
    done->bytes = NULL;
    done->tokens = mem_new_array(m->n_tokens + 1, sizeof *done->tokens);
    if (done->tokens)
        memcpy(done->tokens, m->tokens, m->n_tokens * sizeof *m->tokens);
    w->out_of_memory |= !done->tokens;
    done->value = m->stage == 0 || m->value == hash ? hash : random_mix(m->value ^ hash);
    if (node->hostile && world_chance_ppm(w, LIES_PPM))
        done->value = random_mix(~done->value);
    world_push(
        w, (struct event){.at_ms = w->now_ms + heat_work_ms(node, h->device,
                                                            stage_work_ms(w, node, h, m->n_tokens)),
                          .type = EVENT_STEP,
                          .node = node->index,
                          .a = h->key,
                          .message = done});
}

/* What was lost meanwhile computes nothing. */
void serve_event(struct world *w, struct node *node, const struct event *event)
{
    const struct message *m = event->message;
    const struct hosted *h = host_find(node, m->instance, m->epoch, m->stage);
    if (h && h->key == event->a && h->state == WORKER_READY)
        stage_pass_on(w, node, h, m);
}
