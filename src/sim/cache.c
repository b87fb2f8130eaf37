/* Caches that go along with a move: by the rules of hosting/hosting_give.c and
 * hosting/hosting_take.c in small. The old driver ends between two tokens and offers what it has;
 * who has a layer sends what it holds of it to who has it next; when all have said that they have
 * all, the new driver begins with it. Until then it is not used. Whatever goes wrong, or takes too
 * long, it begins with nothing, and requests are computed anew. What a cache holds is a hash of all
 * tokens that it has seen; each also knows that of one step before, as a cache can be cut short. */
#include "sim/world.h"

#include "base/limits.h"
#include "base/mem.h"
#include "base/random.h"

#include <string.h>

enum { KEPT_WORDS = 5, LINK_BYTES_PER_MS = 110000, KV_BYTES = 4096 /* of a layer and token */ };

struct heir {
    uint32_t node, stage, n_layers;
};

struct handover {
    uint64_t to_epoch, until_ms, next_ms;
    uint32_t n_heirs, n_sent, n_offered;
    bool offered, over;
    struct heir heirs[LIMIT_STAGES]; /* of layers of this stage */
    struct kept *offer;
};

struct takeover {
    uint64_t from_epoch, until_ms;
    uint32_t old_driver, n_layers, n_kept, n_seeds;
    bool open, offered, told;
    bool done[LIMIT_STAGES]; /* the driver's: who has all */
    struct kept *kept;       /* of this stage */
    struct kept *seeds;      /* the driver's: what all of them have */
};

void kept_free(struct hosted *h)
{
    if (h->give)
        mem_free(h->give->offer);
    if (h->take) {
        mem_free(h->take->kept);
        mem_free(h->take->seeds);
    }
    mem_free(h->give);
    mem_free(h->take);
    h->give = NULL;
    h->take = NULL;
}

/* ---- messages ---- */

static struct message *new_message(struct world *w, const struct node *node, uint32_t to,
                                   enum message_kind kind, const struct kept *list, uint32_t n)
{
    struct message *m = message_new(kind, node, to);
    if (m)
        m->tokens = mem_new_array((size_t)n * KEPT_WORDS + 1, sizeof *m->tokens);
    if (!m || !m->tokens) {
        w->out_of_memory = true;
        message_free_one(m);
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t words[KEPT_WORDS] = {list[i].request, list[i].tokens, list[i].hash,
                                            list[i].before_tokens, list[i].before_hash};
        memcpy(m->tokens + (size_t)i * KEPT_WORDS, words, sizeof words);
    }
    m->n_tokens = n * KEPT_WORDS;
    return m;
}

static struct kept *read_list(struct world *w, const struct message *m, uint32_t *n)
{
    *n = m->n_tokens / KEPT_WORDS;
    struct kept *list = mem_new_array((size_t)*n + 1, sizeof *list);
    w->out_of_memory |= !list;
    for (uint32_t i = 0; list && i < *n; i++) {
        const uint64_t *words = m->tokens + (size_t)i * KEPT_WORDS;
        list[i] = (struct kept){words[0], words[1], words[2], words[3], words[4]};
    }
    return list;
}

static void tell_done(struct world *w, struct node *node, uint32_t to, const struct message *route,
                      bool has_all)
{
    struct message *m = new_message(w, node, to, MESSAGE_CACHE_DONE, NULL, 0);
    if (!m)
        return;
    m->instance = route->instance;
    m->epoch = route->epoch;
    m->stage = route->stage;
    m->value = has_all;
    net_send_link(w, m);
}

/* ---- what goes ---- */

static struct handover *kept_give(struct world *w, struct hosted *h, const Cluster__Placement *next)
{
    struct handover *give = h->give = mem_new(sizeof *give);
    if (!give) {
        w->out_of_memory = true;
        return NULL;
    }
    give->to_epoch = next->epoch;
    give->until_ms = w->now_ms + LIMIT_CACHE_OFFER_MS;
    for (uint32_t i = 0; i < next->n_stages; i++) {
        const Cluster__Stage *stage = next->stages[i];
        const uint32_t first =
            stage->first_layer > h->first_layer ? stage->first_layer : h->first_layer;
        const uint32_t end = stage->first_layer + stage->n_layers < h->first_layer + h->n_layers
                                 ? stage->first_layer + stage->n_layers
                                 : h->first_layer + h->n_layers;
        if (first < end)
            give->heirs[give->n_heirs++] =
                (struct heir){world_node(w, stage->node)->index, i, end - first};
    }
    return give;
}

static bool is_under_way(const struct node *node, const struct hosted *h)
{
    for (const struct sequence *s = node->sequences; s; s = s->next) {
        if (s->instance == h->instance && s->epoch == h->epoch && s->round)
            return true;
    }
    return false;
}

static uint64_t fold_all(const uint64_t *tokens, uint32_t n)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < n; i++)
        hash = reference_fold(hash, tokens[i]);
    return hash;
}

/* What the driver has told all its stages to keep. */
static uint32_t list_slots(const struct node *node, const struct hosted *h, struct kept *out,
                           uint32_t most)
{
    uint32_t n = 0;
    for (const struct sequence *s = node->sequences; s && n < most; s = s->next) {
        if (s->instance != h->instance || s->epoch != h->epoch || !s->n_fed)
            continue;
        out[n++] = (struct kept){s->request, s->n_fed, fold_all(s->tokens, s->n_fed), s->n_before,
                                 fold_all(s->tokens, s->n_before)};
    }
    return n;
}

static bool is_told(const uint32_t *nodes, uint32_t n, uint32_t node)
{
    for (uint32_t i = 0; i < n; i++) {
        if (nodes[i] == node)
            return true;
    }
    return false;
}

/* To each node of both placements, once. */
static void make_offer(struct world *w, struct node *node, struct hosted *h,
                       const Cluster__Placement *next)
{
    struct kept slots[LIMIT_SEQUENCES];
    uint32_t told[2 * LIMIT_STAGES], n_told = 0;
    const uint32_t n = list_slots(node, h, slots, LIMIT_SEQUENCES);
    for (uint32_t i = 0; i < h->n_route + next->n_stages; i++) {
        const uint32_t to =
            i < h->n_route ? h->route[i] : world_node(w, next->stages[i - h->n_route]->node)->index;
        if (is_told(told, n_told, to))
            continue;
        told[n_told++] = to;
        struct message *m = new_message(w, node, to, MESSAGE_CACHE_OFFER, slots, n);
        if (!m)
            return;
        m->instance = h->instance;
        m->epoch = next->epoch;
        m->a = h->epoch;
        net_send_link(w, m);
    }
    world_say(w, "%s: the driver of i%u offers %u caches to epoch %llu", node->id, h->instance, n,
              (unsigned long long)next->epoch);
    serve_return_all(w, node, h);
}

static const struct cached *find_cached(const struct hosted *h, const struct kept *slot)
{
    for (uint32_t i = h->n_cached; i-- > 0;) {
        if (h->cached[i].request == slot->request && h->cached[i].tokens == slot->tokens)
            return &h->cached[i];
    }
    return NULL;
}

/* False: it does not have what its driver offered. */
static bool send_rows(struct world *w, struct node *node, const struct hosted *h,
                      const struct heir *heir)
{
    const struct handover *give = h->give;
    struct kept rows[LIMIT_SEQUENCES];
    for (uint32_t i = 0; i < give->n_offered; i++) {
        const struct cached *has = find_cached(h, &give->offer[i]);
        if (!has)
            return false;
        rows[i] = (struct kept){has->request, has->tokens, has->hash, has->before_tokens,
                                has->before_hash};
    }
    struct message *m = new_message(w, node, heir->node, MESSAGE_CACHE_ROWS, rows, give->n_offered);
    if (!m)
        return false;
    m->instance = h->instance;
    m->epoch = give->to_epoch;
    m->a = h->epoch;
    m->stage = heir->stage;
    m->value = heir->n_layers;
    return net_send_link(w, m);
}

static uint64_t rows_ms(const struct handover *give, const struct heir *heir)
{
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < give->n_offered; i++)
        tokens += give->offer[i].tokens;
    return 1 + tokens * heir->n_layers * KV_BYTES / LINK_BYTES_PER_MS;
}

static void go_on(struct world *w, struct node *node, struct hosted *h)
{
    struct handover *give = h->give;
    const Cluster__Placement *next = serve_placement(node, h->instance, give->to_epoch);
    if (!next || (!give->offered && w->now_ms >= give->until_ms)) {
        give->over = true;
        return;
    }
    if (h->stage == 0 && !give->offered && !is_under_way(node, h) && !give->next_ms) {
        give->next_ms = w->now_ms; /* its own offer comes as everybody's */
        make_offer(w, node, h, next);
    }
    while (give->offered && give->n_sent < give->n_heirs && give->next_ms <= w->now_ms) {
        const struct heir *heir = &give->heirs[give->n_sent++];
        if (!send_rows(w, node, h, heir)) {
            tell_done(w, node, world_node(w, next->stages[0]->node)->index,
                      &(struct message){
                          .instance = h->instance, .epoch = next->epoch, .stage = heir->stage},
                      false);
            give->over = true;
            return;
        }
        give->next_ms = w->now_ms + rows_ms(give, heir);
        host_look_later(w, node, h, rows_ms(give, heir));
    }
    give->over = give->offered && give->n_sent == give->n_heirs;
}

static void decline(struct world *w, struct node *node, const struct hosted *h,
                    const Cluster__Placement *next)
{
    tell_done(w, node, world_node(w, next->stages[0]->node)->index,
              &(struct message){.instance = h->instance, .epoch = next->epoch}, false);
}

bool kept_hand_over(struct world *w, struct node *node, struct hosted *h)
{
    const char id[] = {'i', (char)('0' + h->instance), 0};
    const Cluster__Instance *is = state_instance(node_state(node), id);
    const Cluster__Placement *next = is && is->active ? is->current : NULL;
    if (!next || next->epoch <= h->epoch)
        return false;
    if (h->state != WORKER_READY || (!h->stage && h->lost) || !state_is_ready(next)) {
        if (!h->stage)
            decline(w, node, h, next);
        return false;
    }
    if (!h->give && !kept_give(w, h, next))
        return false;
    if (h->give->to_epoch != next->epoch)
        return false;
    go_on(w, node, h);
    return !h->give->over;
}

/* ---- what comes ---- */

void kept_open(struct world *w, struct node *node, struct hosted *h)
{
    const char id[] = {'i', (char)('0' + h->instance), 0};
    const Cluster__Instance *is = state_instance(node_state(node), id);
    if (!is || !is->next || is->next->epoch != h->epoch || is->next->replaces ||
        !state_is_ready(is->current))
        return;
    h->take = mem_new(sizeof *h->take);
    w->out_of_memory |= !h->take;
    if (!h->take)
        return;
    h->take->open = true;
    h->take->from_epoch = is->current->epoch;
    h->take->old_driver = world_node(w, is->current->stages[0]->node)->index;
}

bool kept_waits(struct world *w, const struct node *node, struct hosted *driver)
{
    struct takeover *take = driver->take;
    if (!take || !take->open)
        return false;
    if (!take->until_ms)
        take->until_ms = w->now_ms + LIMIT_CACHE_OFFER_MS;
    if (w->now_ms < take->until_ms && (take->offered || net_link(w, node->index, take->old_driver)))
        return true;
    take->open = false;
    take->n_seeds = 0;
    return false;
}

void kept_lost(struct hosted *driver)
{
    if (driver->take)
        driver->take->n_seeds = 0;
}

static void tell_when_full(struct world *w, struct node *node, struct hosted *h)
{
    struct takeover *take = h->take;
    const bool full = take->offered && (take->n_layers == h->n_layers || !take->n_seeds);
    if (!full || take->told)
        return;
    take->told = true;
    tell_done(w, node, h->route[0],
              &(struct message){.instance = h->instance, .epoch = h->epoch, .stage = h->stage},
              true);
}

static void on_offer(struct world *w, struct node *node, struct hosted *h, const struct message *m)
{
    if (h->epoch == m->a && h->state == WORKER_READY && !(h->give && h->give->offered)) {
        const Cluster__Placement *next = serve_placement(node, m->instance, m->epoch);
        if (!next || (!h->give && !kept_give(w, h, next)) || h->give->to_epoch != m->epoch)
            return;
        h->give->offer = read_list(w, m, &h->give->n_offered);
        h->give->offered = h->give->offer != NULL;
        h->give->next_ms = w->now_ms;
        go_on(w, node, h);
        node->changed = true;
    }
    if (h->epoch == m->epoch && h->take && h->take->open && !h->take->offered &&
        h->take->from_epoch == m->a) {
        h->take->seeds = read_list(w, m, &h->take->n_seeds);
        h->take->offered = h->take->seeds != NULL;
        if (h->take->until_ms)
            h->take->until_ms = w->now_ms + LIMIT_CACHE_OFFER_MS;
        tell_when_full(w, node, h);
    }
}

/* Layers of one stage that do not hold the same are no cache of any text. */
static void merge(struct takeover *take, const struct kept *list, uint32_t n)
{
    for (uint32_t i = 0; i < take->n_kept; i++) {
        struct kept *has = &take->kept[i];
        bool same = false;
        for (uint32_t k = 0; k < n; k++)
            same |= memcmp(has, &list[k], sizeof *has) == 0;
        if (!same)
            has->hash = random_mix(has->hash), has->before_hash = random_mix(has->before_hash);
    }
}

static void on_rows(struct world *w, struct node *node, struct hosted *h, const struct message *m)
{
    struct takeover *take = h->take;
    uint32_t n;
    if (h->epoch != m->epoch || h->stage != m->stage || h->state != WORKER_READY || !take ||
        take->from_epoch != m->a || (h->stage == 0 && !take->open))
        return;
    struct kept *list = read_list(w, m, &n);
    if (!list)
        return;
    take->n_layers += (uint32_t)m->value;
    if (take->kept) {
        merge(take, list, n);
        mem_free(list);
    } else {
        take->kept = list;
        take->n_kept = n;
    }
    tell_when_full(w, node, h);
}

static void on_done(struct world *w, struct node *node, struct hosted *h, const struct message *m)
{
    struct takeover *take = h->take;
    if (h->epoch != m->epoch || h->stage || h->state != WORKER_READY || !take || !take->open)
        return;
    node->changed = true;
    if (m->stage < h->n_route)
        take->done[m->stage] = m->value;
    bool all = m->value;
    for (uint32_t i = 0; i < h->n_route; i++)
        all = all && take->done[i];
    if (m->value && !all)
        return;
    take->open = false;
    take->n_seeds = all ? take->n_seeds : 0;
    h->mend_ms = w->now_ms;
    world_say(w, "%s: the driver of i%u, epoch %llu, begins with %u caches", node->id, h->instance,
              (unsigned long long)h->epoch, take->n_seeds);
}

void kept_receive(struct world *w, struct node *node, const struct message *m)
{
    for (struct hosted *h = node->hosted; h; h = h->next) {
        if (h->instance != m->instance)
            continue;
        if (m->kind == MESSAGE_CACHE_OFFER)
            on_offer(w, node, h, m);
        else if (m->kind == MESSAGE_CACHE_ROWS)
            on_rows(w, node, h, m);
        else
            on_done(w, node, h, m);
    }
}

/* ---- what is made of it ---- */

uint32_t kept_seed(struct hosted *driver, uint64_t request, const uint64_t *tokens,
                   uint32_t n_tokens)
{
    struct takeover *take = driver->take;
    for (uint32_t i = 0; take && i < take->n_seeds; i++) {
        const struct kept seed = take->seeds[i];
        if (seed.request != request)
            continue;
        take->seeds[i] = take->seeds[--take->n_seeds];
        const uint64_t n = seed.tokens < n_tokens ? seed.tokens : seed.before_tokens;
        const uint64_t hash = seed.tokens < n_tokens ? seed.hash : seed.before_hash;
        return n && n < n_tokens && fold_all(tokens, (uint32_t)n) == hash ? (uint32_t)n : 0;
    }
    return 0;
}

bool kept_take(struct hosted *h, uint64_t request, uint64_t position, uint64_t *hash)
{
    struct takeover *take = h->take;
    for (uint32_t i = 0; take && i < take->n_kept; i++) {
        const struct kept has = take->kept[i];
        if (has.request != request || (has.tokens != position && has.before_tokens != position))
            continue;
        *hash = has.tokens == position ? has.hash : has.before_hash;
        if (take->n_layers != h->n_layers) /* layers that have nothing are no cache of any text */
            *hash = random_mix(*hash);
        take->kept[i] = take->kept[--take->n_kept];
        return true;
    }
    return false;
}
