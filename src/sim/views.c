/* States that parties share (party.h): nodes with one log may hold one between them, since what it
 * holds follows from the log alone. */
#include "sim/world.h"

#include "base/mem.h"
#include "base/random.h"

#include <assert.h>

/* One of w->views; the state comes first, so that one is the other. */
struct view {
    struct state state;
    uint32_t refs;
    uint64_t chain; /* says which log, and up to where */
    struct view *next;
};

static struct view **view_bucket(struct world *w, uint64_t chain)
{
    return &w->views[chain % (sizeof w->views / sizeof *w->views)];
}

static uint64_t view_chain(struct lineage lineage, uint64_t index)
{
    return random_mix(lineage.generation ^ random_mix(lineage.founder ^ random_mix(index)));
}

static void view_link(struct world *w, struct view *view, uint64_t chain)
{
    struct view **bucket = view_bucket(w, chain);
    view->chain = chain;
    view->next = *bucket;
    *bucket = view;
}

static void view_unlink(struct world *w, const struct view *view)
{
    struct view **at = view_bucket(w, view->chain);
    while (*at != view)
        at = &(*at)->next;
    *at = view->next;
}

static void view_give_back(void *self, struct state *state)
{
    struct world *w = self;
    struct view *view = (struct view *)state;
    assert(view->refs > 0);
    if (--view->refs)
        return;
    view_unlink(w, view);
    state_deinit(&view->state);
    mem_free(view);
}

static struct state *view_find(void *self, struct state *old, struct lineage lineage,
                               uint64_t index)
{
    assert(index);
    struct world *w = self;
    const uint64_t chain = view_chain(lineage, index);
    struct view *view = *view_bucket(w, chain);
    while (view && view->chain != chain)
        view = view->next;
    if (!view)
        return NULL;
    view->refs++;
    if (old)
        view_give_back(w, old);
    return &view->state;
}

static bool view_copy(struct state *to, const struct state *from)
{
    struct buffer bytes = {0};
    state_encode(from, &bytes);
    const bool good =
        !bytes.failed && !state_decode(to, (const uint8_t *)bytes.data, bytes.size, NULL);
    buffer_deinit(&bytes);
    return good;
}

static struct state *view_own(void *self, struct state *old, struct lineage lineage, uint64_t index)
{
    assert(index);
    struct world *w = self;
    struct view *view = (struct view *)old;
    if (view && view->refs == 1) {
        view_unlink(w, view);
        view_link(w, view, view_chain(lineage, index));
        return &view->state;
    }
    view = mem_new(sizeof *view);
    if (!view || (old && old->root && !view_copy(&view->state, old))) {
        mem_free(view);
        w->out_of_memory = true;
        return NULL;
    }
    view->refs = 1;
    view_link(w, view, view_chain(lineage, index));
    if (old)
        view_give_back(w, old);
    return &view->state;
}

struct party_states views_of(struct world *w)
{
    return (struct party_states){
        .find = view_find, .own = view_own, .give_back = view_give_back, .self = w};
}
