#include "agreement_world.h"

#include "base/clock.h"
#include "base/random.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parcel_of_world {
    struct parcel_of_world *next;
    int to;
    uint64_t from_member, to_member;
    bool is_proposal;
    size_t size;
    uint8_t bytes[];
};

/* ---- what an agreement sees ---- */

static struct agreement_node *node_of_member(struct agreement_world *w, uint64_t member)
{
    for (int i = 0; i < AGREEMENT_NODES; i++) {
        if (w->nodes[i].agreement && agreement_member(w->nodes[i].agreement) == member)
            return &w->nodes[i];
    }
    return NULL;
}

static bool post(struct agreement_node *from, uint64_t member, const void *bytes, size_t size,
                 bool is_proposal)
{
    struct agreement_world *w = from->world;
    struct agreement_node *to = node_of_member(w, member);
    if (!to || to->cut_off || from->cut_off)
        return false;
    from->n_frames++;
    if (size > from->largest_frame)
        from->largest_frame = (uint32_t)size;
    if (random_at(7, w->draws++) % 1000000 < w->loss_ppm)
        return true;
    struct parcel_of_world *parcel = malloc(sizeof *parcel + size);
    *parcel = (struct parcel_of_world){.to = to->index,
                                       .from_member = agreement_member(from->agreement),
                                       .to_member = member,
                                       .is_proposal = is_proposal,
                                       .size = size};
    memcpy(parcel->bytes, bytes, size);
    *w->last = parcel;
    w->last = &parcel->next;
    return true;
}

static bool on_send(void *self, uint64_t member, const void *bytes, size_t size)
{
    return post(self, member, bytes, size, false);
}

static bool on_forward(void *self, uint64_t member, const void *bytes, size_t size)
{
    return post(self, member, bytes, size, true);
}

static void on_changed(void *self)
{
    struct agreement_node *node = self;
    node->n_changed++;
    node->n_emptied += !agreement_state(node->agreement)->root;
}

static void on_applied(void *self, uint64_t index, const Cluster__Event *event,
                       const struct state_outcome *outcome)
{
    struct agreement_node *node = self;
    assert(node->n_applied < AGREEMENT_APPLIED_MAX && index &&
           (outcome->applied || outcome->reason));
    node->nonces[node->n_applied++] = event->nonce;
}

static void on_failed(void *self, const struct error *why)
{
    struct agreement_node *node = self;
    node->n_failed++;
    node->failure = *why;
}

/* ---- the loop ---- */

static void deliver(struct agreement_world *w)
{
    struct parcel_of_world *parcel = w->first;
    w->first = NULL;
    w->last = &w->first;
    while (parcel) {
        struct parcel_of_world *next = parcel->next;
        struct agreement_node *to = &w->nodes[parcel->to];
        if (to->agreement && !to->cut_off && agreement_member(to->agreement) == parcel->to_member) {
            if (parcel->is_proposal)
                agreement_receive_proposal(to->agreement, parcel->bytes, parcel->size);
            else
                agreement_receive(to->agreement, parcel->from_member, parcel->bytes, parcel->size);
        }
        free(parcel);
        parcel = next;
    }
}

static void set_members(struct agreement_world *w)
{
    for (int i = 0; i < AGREEMENT_NODES; i++) {
        struct agreement_node *node = &w->nodes[i];
        struct member_view views[AGREEMENT_NODES];
        uint32_t n = 0;
        for (int k = 0; k < AGREEMENT_NODES; k++) {
            const struct agreement_node *other = &w->nodes[k];
            const uint64_t member = other->agreement ? agreement_member(other->agreement) : 0;
            if (other->wanted && member)
                views[n++] =
                    (struct member_view){.id = member, .alive = !other->cut_off, .steady = true};
        }
        if (node->agreement)
            agreement_set_members(node->agreement, views, node->cut_off ? 0 : n);
    }
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer; /* wakes the loop */
}

static uint64_t now_ms(void)
{
    return clock_now_ns() / 1000000;
}

bool agreement_world_run(struct agreement_world *w, bool (*is_so)(void *arg), void *arg,
                         uint32_t limit_ms)
{
    const uint64_t until = now_ms() + limit_ms;
    uint64_t members_ms = 0;
    while (!is_so || !is_so(arg)) {
        if (now_ms() >= until)
            return false;
        if (now_ms() >= members_ms) {
            set_members(w);
            members_ms = now_ms() + 10;
        }
        deliver(w);
        uv_run(&w->loop, UV_RUN_ONCE);
    }
    return true;
}

void agreement_world_run_for(struct agreement_world *w, uint32_t ms)
{
    agreement_world_run(w, NULL, NULL, ms);
}

/* ---- nodes ---- */

struct agreement_world *agreement_world_init(void)
{
    struct agreement_world *w = calloc(1, sizeof *w);
    snprintf(w->folder, sizeof w->folder, "/tmp/medley-agreement-XXXXXX");
    char *made = mkdtemp(w->folder);
    assert(made);
    (void)made;
    uv_loop_init(&w->loop);
    uv_timer_init(&w->loop, &w->tick);
    uv_timer_start(&w->tick, on_tick, 1, 1);
    w->last = &w->first;
    w->options.loop = &w->loop;
    w->options.replica = (struct replica_options){.election_ms = 100,
                                                  .heartbeat_ms = 25,
                                                  .status_ms = 50,
                                                  .grace_ms = 60000,
                                                  .minority_grace_ms = 60000};
    w->options.step_ms = 50;
    w->options.reopen_ms = 50;
    w->options.proposal_ms = 5000;
    for (int i = 0; i < AGREEMENT_NODES; i++) {
        struct agreement_node *node = &w->nodes[i];
        node->world = w;
        node->index = i;
        snprintf(node->id, sizeof node->id, "node%d", i);
        snprintf(node->path, sizeof node->path, "%s/%d.db", w->folder, i);
    }
    return w;
}

enum error_code agreement_world_open(struct agreement_world *w, int index, struct error *err)
{
    struct agreement_node *node = &w->nodes[index];
    struct agreement_options options = w->options;
    options.path = node->path;
    options.node = node->id;
    options.events =
        (struct agreement_events){on_changed, on_applied, on_send, on_forward, on_failed, node};
    return agreement_open(&options, &node->agreement, err);
}

static void on_closed(void *arg)
{
    ((struct agreement_node *)arg)->is_closed = true;
}

static bool is_closed(void *arg)
{
    return ((struct agreement_node *)arg)->is_closed;
}

void agreement_world_close(struct agreement_world *w, int index)
{
    struct agreement_node *node = &w->nodes[index];
    struct agreement *agreement = node->agreement;
    if (!agreement)
        return;
    node->is_closed = false;
    agreement_close(agreement, on_closed, node);
    node->agreement = NULL;
    const bool closed = agreement_world_run(w, is_closed, node, 5000);
    assert(closed);
    (void)closed;
}

void agreement_world_deinit(struct agreement_world *w)
{
    char command[128];
    for (int i = 0; i < AGREEMENT_NODES; i++)
        agreement_world_close(w, i);
    deliver(w);
    uv_close((uv_handle_t *)&w->tick, NULL);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    const int left = uv_loop_close(&w->loop);
    assert(left == 0);
    snprintf(command, sizeof command, "rm -r %s", w->folder);
    const int removed = system(command);
    assert(removed == 0);
    (void)left, (void)removed;
    free(w);
}

static bool all_have_it(void *arg)
{
    struct agreement_world *w = arg;
    uint32_t n = 0, voters = 0;
    for (int i = 0; i < AGREEMENT_NODES; i++)
        n += w->nodes[i].wanted;
    for (int i = 0; i < AGREEMENT_NODES; i++) {
        const struct agreement_node *node = &w->nodes[i];
        if (!node->wanted)
            continue;
        const Cluster__State *root = agreement_state(node->agreement)->root;
        if (!root || root->n_members != n || agreement_world_leader(w) < 0)
            return false;
        voters = 0;
        for (size_t k = 0; k < root->n_members; k++)
            voters += (uint32_t)root->members[k]->votes;
        if (voters != members_voters_wanted(n))
            return false;
    }
    return true;
}

void agreement_world_found(struct agreement_world *w, int n)
{
    struct error err = {0};
    enum error_code code = ERROR_NONE;
    for (int i = 0; i < n && !code; i++) {
        code = agreement_world_open(w, i, &err);
        w->nodes[i].wanted = true;
        if (!code && i == 0)
            code = agreement_found(w->nodes[0].agreement, &err);
    }
    if (code || !agreement_world_run(w, all_have_it, w, 8000)) {
        fprintf(stderr, "%d nodes did not come together: %s\n", n, err.text);
        abort();
    }
}

/* ---- questions and wishes ---- */

int agreement_world_leader(const struct agreement_world *w)
{
    int leader = -1;
    uint64_t term = 0;
    for (int i = 0; i < AGREEMENT_NODES; i++) {
        if (!w->nodes[i].agreement || w->nodes[i].cut_off)
            continue;
        const struct replica_status status = agreement_status(w->nodes[i].agreement);
        if (status.leads && status.term >= term)
            leader = i, term = status.term;
    }
    return leader;
}

const char *agreement_world_setting(const struct agreement_world *w, int index, const char *key)
{
    return w->nodes[index].agreement
               ? state_setting(agreement_state(w->nodes[index].agreement), key)
               : NULL;
}

static void on_done(void *arg, enum error_code code, const struct state_outcome *outcome,
                    const struct error *err)
{
    struct agreement_wish *wish = arg;
    assert(!wish->is_done && !code == !!outcome && !code == !err);
    *wish = (struct agreement_wish){.is_done = true, .code = code};
    if (outcome)
        wish->outcome = *outcome;
    if (err)
        wish->err = *err;
}

void agreement_world_propose(struct agreement_world *w, int index, Cluster__Event *event,
                             struct agreement_wish *wish)
{
    *wish = (struct agreement_wish){0};
    agreement_propose(w->nodes[index].agreement, event, on_done, wish);
    assert(event->nonce || wish->code == ERROR_NO_MEMORY);
}

void agreement_world_set(struct agreement_world *w, int index, const char *key, const char *value,
                         struct agreement_wish *wish)
{
    Cluster__Setting setting = CLUSTER__SETTING__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    setting.key = (char *)(uintptr_t)key;
    setting.value = (char *)(uintptr_t)value;
    event.kind_case = CLUSTER__EVENT__KIND_SETTING_CHANGED;
    event.setting_changed = &setting;
    agreement_world_propose(w, index, &event, wish);
}

bool agreement_wish_is_done(void *wish)
{
    return ((struct agreement_wish *)wish)->is_done;
}

enum error_code agreement_world_agree(struct agreement_world *w, int index, const char *key,
                                      const char *value, struct error *err)
{
    struct agreement_wish wish;
    agreement_world_set(w, index, key, value, &wish);
    const bool is_done = agreement_world_run(w, agreement_wish_is_done, &wish, 8000);
    assert(is_done && (wish.code || wish.outcome.applied));
    *err = wish.err;
    return wish.code;
}

struct expected {
    const struct agreement_world *world;
    int index;
    const char *key, *value;
};

static bool world_has(void *arg)
{
    const struct expected *e = arg;
    const char *value = agreement_world_setting(e->world, e->index, e->key);
    return value && strcmp(value, e->value) == 0;
}

void agreement_world_await(struct agreement_world *w, int index, const char *key, const char *value)
{
    if (agreement_world_run(w, world_has, &(struct expected){w, index, key, value}, 8000))
        return;
    fprintf(stderr, "node %d does not get %s = %s\n", index, key, value);
    abort();
}
