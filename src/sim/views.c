/* A node's state. Nodes with one log may share one: what it holds follows from the log alone. */
#include "sim/world.h"

#include "base/mem.h"
#include "base/random.h"

void view_drop(struct world *w, struct view *view)
{
    if (!view || --view->refs)
        return;
    for (struct view **at = &w->views[view->chain % 4096]; *at; at = &(*at)->next) {
        if (*at == view) {
            *at = view->next;
            break;
        }
    }
    state_deinit(&view->state);
    buffer_deinit(&view->encoded);
    mem_free(view);
}

static void set_chain(struct world *w, struct view *view, uint64_t chain)
{
    view->chain = chain;
    view->next = w->views[chain % 4096];
    w->views[chain % 4096] = view;
}

struct view *view_new(struct world *w, uint64_t chain)
{
    struct view *view = mem_new(sizeof *view);
    if (!view) {
        w->out_of_memory = true;
        return NULL;
    }
    view->refs = 1;
    set_chain(w, view, chain);
    return view;
}

uint64_t view_chain(const struct lineage *lineage, uint64_t index)
{
    return random_mix(lineage->generation ^ random_mix(lineage->founder ^ random_mix(index)));
}

bool view_share(struct world *w, struct node *node, uint64_t chain)
{
    for (struct view *view = w->views[chain % 4096]; view && w->shares; view = view->next) {
        if (view->chain != chain)
            continue;
        view->refs++;
        view_drop(w, node->view);
        node->view = view;
        return true;
    }
    return false;
}

/* The node's own, to be changed. */
bool view_own(struct world *w, struct node *node, uint64_t chain)
{
    struct view *old = node->view, *view = view_new(w, chain);
    if (!view)
        return false;
    if (old->refs == 1) {
        view->state = old->state;
        old->state = (struct state){0};
    } else if (old->state.root) {
        struct buffer bytes = {0};
        state_encode(&old->state, &bytes);
        w->out_of_memory |= bytes.failed || state_decode(&view->state, (const uint8_t *)bytes.data,
                                                         bytes.size, NULL);
        buffer_deinit(&bytes);
    }
    view_drop(w, old);
    node->view = view;
    return true;
}

const struct state *node_state(const struct node *node)
{
    return node->keeps ? &node->kept->state : &node->view->state;
}

void view_keep(struct world *w, struct node *node, uint64_t until)
{
    struct view *empty = view_new(w, world_draw(w, UINT64_MAX));
    if (!empty)
        return;
    if (node->keeps || !node->view->state.root) {
        view_drop(w, node->view);
    } else {
        node->kept = node->view;
        node->keeps = true;
    }
    node->view = empty;
    node->kept_until = until;
    node->applied = 0;
}

void view_advance(struct world *w, struct node *node, uint64_t index)
{
    node->applied = index;
    if (node->keeps && index >= node->kept_until) {
        view_drop(w, node->kept);
        node->kept = NULL;
        node->keeps = false;
    }
    node->changed |= !node->keeps;
}
