#include "placement/whatif.h"

#include "base/mem.h"
#include "base/size_text.h"
#include "placement/changed.h"
#include "placement/prefill.h"

#include <stdio.h>
#include <string.h>

static const struct placement_link ASSUMED_IN_MACHINE = {10e-6, 10e9},
                                   ASSUMED_IN_HOME = {300e-6, 117e6};

enum error_code placement_rate(const struct placement_problem *problem,
                               const struct placement_options *options, struct placement_rates *out,
                               struct error *err)
{
    struct placement_options bounded = *options;
    struct placement_solution solution;
    struct error own;
    *out = (struct placement_rates){0};
    if (options->go_on && !options->go_on(options->self))
        return placement_problem_check(problem, err);
    if (!bounded.max_nodes)
        bounded.max_nodes = PLACEMENT_WHATIF_NODES;
    const enum error_code code = placement_solve(problem, &bounded, &solution, err ? err : &own);
    if (code == ERROR_NOT_FOUND) {
        out->answer = PLACEMENT_IMPOSSIBLE;
        out->proved = true;
    }
    if (code)
        return code == ERROR_NOT_FOUND || code == ERROR_BUSY ? ERROR_NONE : code;
    const struct placement_cost cost = placement_decode_cost(problem, &solution.placement);
    out->answer = PLACEMENT_POSSIBLE;
    out->proved = solution.proved;
    out->decode_tokens_per_s = placement_decode_tokens_per_s(problem, &cost);
    out->prefill_tokens_per_s = placement_prefill_tokens_per_s(problem, &solution.placement);
    out->placement = solution.placement;
    return ERROR_NONE;
}

/* ---- less ----------------------------------------------------------------------------- */

/* Without the device, or without the node where that is not NULL. */
static enum error_code whatif_without(const struct placement_problem *problem, uint32_t device,
                                      const char *node, const struct placement_options *options,
                                      struct placement_rates *out, struct error *err)
{
    struct changed changed;
    *out = (struct placement_rates){0};
    enum error_code code = changed_init(&changed, problem, err);
    if (code)
        return code;
    for (uint32_t d = 0; d < problem->n_devices; d++) {
        if (node ? !strcmp(changed.devices[d].node, node) : d == device)
            changed.devices[d].excluded = true;
    }
    code = placement_rate(&changed.problem, options, out, err);
    changed_deinit(&changed);
    return code;
}

enum error_code placement_without_device(const struct placement_problem *problem, uint32_t device,
                                         const struct placement_options *options,
                                         struct placement_rates *out, struct error *err)
{
    return whatif_without(problem, device, NULL, options, out, err);
}

enum error_code placement_without_node(const struct placement_problem *problem, const char *node,
                                       const struct placement_options *options,
                                       struct placement_rates *out, struct error *err)
{
    return whatif_without(problem, 0, node, options, out, err);
}

/* ---- more ----------------------------------------------------------------------------- */

static void mark_copy(char name[PLACEMENT_NAME_MAX])
{
    const size_t length = strnlen(name, PLACEMENT_NAME_MAX - 2);
    name[length] = '+';
    name[length + 1] = 0;
}

static bool whatif_is_there(const struct placement_problem *problem, const char *node,
                            const char *id)
{
    for (uint32_t d = 0; d < problem->n_devices; d++) {
        if (!strcmp(problem->devices[d].node, node) && (!id || !strcmp(problem->devices[d].id, id)))
            return true;
    }
    return false;
}

struct placement_extra placement_extra_copy(const struct placement_problem *problem,
                                            uint32_t device, bool own_machine)
{
    struct placement_extra extra = {.device = problem->devices[device], .like = device};
    extra.device.excluded = false;
    mark_copy(extra.device.id);
    if (own_machine)
        mark_copy(extra.device.node);
    return extra;
}

static double whatif_carry_s(const struct placement_problem *problem,
                             const struct placement_link *link)
{
    return link->latency_s + (double)problem->model.activation_bytes_per_token / link->bytes_per_s;
}

static void take_better(const struct placement_problem *problem, uint32_t from, uint32_t to,
                        struct placement_link *best)
{
    const struct placement_link *link = placement_link(problem, from, to);
    if (from == to || link->bytes_per_s <= 0)
        return;
    if (best->bytes_per_s <= 0 || whatif_carry_s(problem, link) < whatif_carry_s(problem, best))
        *best = *link;
}

/* The best link between two devices of one node: of this one, or of any where it is NULL. */
static struct placement_link best_inside(const struct placement_problem *problem, const char *node)
{
    struct placement_link best = {0};
    for (uint32_t from = 0; from < problem->n_devices; from++) {
        const char *its = problem->devices[from].node;
        for (uint32_t to = 0; to < problem->n_devices && (!node || !strcmp(its, node)); to++) {
            if (!strcmp(its, problem->devices[to].node))
                take_better(problem, from, to, &best);
        }
    }
    return best;
}

struct placement_link placement_extra_beside(const struct placement_problem *problem,
                                             const struct placement_extra *extra, bool *assumed)
{
    const char *node = problem->devices[extra->like].node;
    const bool inside = !strcmp(node, extra->device.node);
    struct placement_link best = {0};
    *assumed = false;
    if (extra->beside.bytes_per_s > 0)
        return extra->beside;
    if (inside) {
        best = best_inside(problem, node);
        if (best.bytes_per_s <= 0)
            best = best_inside(problem, NULL);
    } else {
        for (uint32_t d = 0; d < problem->n_devices; d++) {
            if (strcmp(node, problem->devices[d].node) != 0)
                take_better(problem, extra->like, d, &best);
        }
    }
    *assumed = best.bytes_per_s <= 0;
    if (*assumed)
        best = inside ? ASSUMED_IN_MACHINE : ASSUMED_IN_HOME;
    return best;
}

enum error_code placement_with_device(const struct placement_problem *problem,
                                      const struct placement_extra *extra,
                                      const struct placement_options *options,
                                      struct placement_rates *out, struct error *err)
{
    struct changed changed;
    bool assumed;
    *out = (struct placement_rates){0};
    if (extra->like >= problem->n_devices)
        return error_set(err, ERROR_INVALID, "an extra device like device %u: there are %u",
                         extra->like, problem->n_devices);
    if (!memchr(extra->device.id, 0, PLACEMENT_NAME_MAX) ||
        !memchr(extra->device.node, 0, PLACEMENT_NAME_MAX))
        return error_set(err, ERROR_INVALID, "the extra device's names are not terminated");
    if (whatif_is_there(problem, extra->device.node, extra->device.id))
        return error_set(err, ERROR_INVALID, "%s already has a device %s", extra->device.node,
                         extra->device.id);
    enum error_code code = changed_init(&changed, problem, err);
    if (!code)
        code = changed_add(&changed, &extra->device, extra->like,
                           placement_extra_beside(problem, extra, &assumed), err);
    if (!code)
        code = placement_rate(&changed.problem, options, out, err);
    changed_deinit(&changed);
    return code;
}

void placement_whatifs_deinit(struct placement_whatifs *whatifs)
{
    mem_free(whatifs->list);
    *whatifs = (struct placement_whatifs){0};
}
