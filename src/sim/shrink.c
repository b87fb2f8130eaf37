#include "sim/sim.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

struct shrinking {
    struct scenario *best;
    struct sim_result *result;
    uint32_t runs;
    enum error_code code;
    struct error *err;
};

/* The same but for its numbers. */
static bool is_alike(const char *a, const char *b)
{
    assert(a && b);
    static const char digits[] = "0123456789";
    for (;; a++, b++) {
        a += strspn(a, digits);
        b += strspn(b, digits);
        if (!*a || *a != *b)
            return *a == *b;
    }
}

/* Takes the smaller scenario if it is violated in the same way; frees it else. */
static bool shrinking_try(struct shrinking *s, struct scenario *smaller)
{
    struct sim_result result;
    bool taken = false;
    if (s->runs && !s->code && !scenario_check(smaller, NULL)) {
        s->runs--;
        s->code = sim_run(smaller, NULL, &result, s->err);
        taken = !s->code && result.violated && is_alike(result.what, s->result->what);
    }
    if (taken) {
        scenario_deinit(s->best);
        *s->best = *smaller;
        *s->result = result;
    } else {
        scenario_deinit(smaller);
    }
    return taken;
}

static bool shrinking_copy(struct shrinking *s, struct scenario *out)
{
    if (!s->code && s->runs)
        s->code = scenario_copy(out, s->best, s->err);
    return !s->code && s->runs;
}

/* Halves first, then quarters, down to single ones (Zeller and Hildebrandt, "Simplifying and
 * isolating failure-inducing input", 2002). */
static bool drop_faults(struct shrinking *s)
{
    bool any = false;
    for (uint32_t n = s->best->n_faults; n; n /= 2) {
        for (uint32_t at = 0; at < s->best->n_faults;) {
            struct scenario smaller;
            const uint32_t left = s->best->n_faults - at, size = n < left ? n : left;
            if (!shrinking_copy(s, &smaller))
                return any;
            memmove(smaller.faults + at, smaller.faults + at + size,
                    (left - size) * sizeof *smaller.faults);
            smaller.n_faults -= size;
            if (shrinking_try(s, &smaller))
                any = true;
            else
                at += size;
        }
    }
    return any;
}

static bool drop_streams(struct shrinking *s)
{
    bool any = false;
    for (uint32_t i = s->best->n_streams; i-- > 0;) {
        struct scenario smaller;
        if (!shrinking_copy(s, &smaller))
            return any;
        memmove(smaller.streams + i, smaller.streams + i + 1,
                (--smaller.n_streams - i) * sizeof *smaller.streams);
        any |= shrinking_try(s, &smaller);
    }
    return any;
}

/* A node that nothing is said of; the numbers above it move down. */
static bool without_node(struct scenario *s, uint32_t node)
{
    assert(node < s->n_nodes);
    for (uint32_t i = 0; i < s->n_streams; i++) {
        if (s->streams[i].node == node)
            s->streams[i].node = node ? 0 : 1;
        s->streams[i].node -= s->streams[i].node > node;
    }
    for (uint32_t i = s->n_faults; i-- > 0;) {
        struct scenario_fault *fault = &s->faults[i];
        if (fault->node == node || fault->other == node)
            memmove(fault, fault + 1, (--s->n_faults - i) * sizeof *fault);
    }
    for (uint32_t i = 0; i < s->n_faults; i++) {
        s->faults[i].node -= s->faults[i].node > node;
        s->faults[i].other -= s->faults[i].other > node;
    }
    memmove(s->nodes + node, s->nodes + node + 1, (--s->n_nodes - node) * sizeof *s->nodes);
    s->nodes[0].joins_ms = 0;
    return s->n_nodes > 0;
}

static bool drop_nodes(struct shrinking *s)
{
    bool any = false;
    for (uint32_t i = s->best->n_nodes; i-- > 0 && s->best->n_nodes > 1;) {
        struct scenario smaller;
        if (!shrinking_copy(s, &smaller))
            return any;
        if (without_node(&smaller, i))
            any |= shrinking_try(s, &smaller);
        else
            scenario_deinit(&smaller);
    }
    return any;
}

static bool shrinking_shorten(struct shrinking *s)
{
    struct scenario smaller;
    uint64_t end = 1000;
    if (!shrinking_copy(s, &smaller))
        return false;
    for (uint32_t i = 0; i < smaller.n_faults; i++) {
        const uint64_t ms = smaller.faults[i].at_ms + smaller.faults[i].for_ms;
        end = ms > end ? ms : end;
    }
    if (s->result->at_ms < smaller.chaos_ms)
        end = s->result->at_ms > end ? s->result->at_ms : end;
    const bool shorter = end + 1000 < smaller.chaos_ms;
    smaller.chaos_ms = end;
    if (shorter)
        return shrinking_try(s, &smaller);
    scenario_deinit(&smaller);
    return false;
}

static bool drop_instances(struct shrinking *s)
{
    struct scenario smaller;
    if (s->best->n_instances < 2 || !shrinking_copy(s, &smaller))
        return false;
    smaller.n_instances--;
    for (uint32_t i = 0; i < smaller.n_streams; i++) {
        if (smaller.streams[i].instance == smaller.n_instances)
            smaller.streams[i].instance--;
    }
    return shrinking_try(s, &smaller);
}

enum error_code sim_shrink(struct scenario *scenario, uint32_t runs, struct sim_result *out,
                           struct error *err)
{
    struct shrinking s = {.best = scenario, .result = out, .runs = runs, .err = err};
    s.code = sim_run(scenario, NULL, out, err);
    for (bool any = out->violated; any && s.runs && !s.code;) {
        any = drop_faults(&s);
        any |= drop_nodes(&s);
        any |= drop_streams(&s);
        any |= drop_instances(&s);
        any |= shrinking_shorten(&s);
    }
    return s.code;
}
