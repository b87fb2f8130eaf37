/* A run from its beginning to its end. */
#include "sim/world.h"

#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- the beginning and the end ---- */

static bool world_found(struct world *w)
{
    struct log_write first;
    struct error err;
    if (replica_found(w->nodes[0].member, &first, &err))
        return false;
    const enum error_code code = log_saved_write(&w->nodes[0].disk, &first, &err);
    log_write_clear(&first);
    return code == ERROR_NONE;
}

static void plan_events(struct world *w)
{
    assert(!w->now_ms);
    const struct scenario *s = w->scenario;
    for (uint32_t i = 0; i < s->n_faults; i++) {
        world_push(w, (struct event){.at_ms = s->faults[i].at_ms,
                                     .type = EVENT_FAULT,
                                     .node = (uint32_t)s->faults[i].node,
                                     .a = i});
        world_push(w, (struct event){.at_ms = fault_end_ms(w, &s->faults[i]),
                                     .type = EVENT_HEAL,
                                     .node = (uint32_t)s->faults[i].node,
                                     .a = i});
    }
    world_push(w, (struct event){.at_ms = s->chaos_ms, .type = EVENT_HEAL, .a = UINT64_MAX});
    for (uint32_t i = 0; i < s->n_streams; i++) {
        w->stream_left[i] = s->streams[i].requests;
        world_push(w, (struct event){.at_ms = s->streams[i].start_ms,
                                     .type = EVENT_STREAM,
                                     .node = (uint32_t)s->streams[i].node,
                                     .other = i});
    }
}

static bool world_init(struct world *w)
{
    const struct scenario *s = w->scenario;
    w->n = s->n_nodes;
    for (uint32_t i = 0; i < w->n; i++)
        w->has_roles |= s->nodes[i].hostile != 0;
    w->shares = w->n > 16;
    w->shared = views_of(w);
    w->seed = s->seed;
    w->nodes = mem_new_array(w->n, sizeof *w->nodes);
    w->ends = mem_new_array((size_t)w->n * w->n, sizeof *w->ends);
    w->cuts = mem_new_array((size_t)w->n * w->n, sizeof *w->cuts);
    w->stream_left = mem_new_array(s->n_streams + 1, sizeof *w->stream_left);
    w->by_member = mem_new_array(WORLD_MEMBERS, sizeof *w->by_member);
    if (!w->nodes || !w->by_member || !w->ends || !w->cuts || !w->stream_left || planner_init(w) ||
        !leading_init(w) || !check_init(w))
        return false;
    for (uint32_t i = 0; i < w->n; i++) {
        struct node *node = &w->nodes[i];
        node->index = i;
        node->world = w;
        snprintf(node->name, sizeof node->name, "n%u", i);
        memcpy(node->id, node->name, sizeof node->name);
        if (w->has_roles && keys_make(node, NULL))
            return false;
        if (s->nodes[i].hostile && !hostile_init(w, node))
            return false;
        world_new_member(w, node);
        for (uint32_t k = 0; k < s->n_instances; k++)
            node->has_weights[k] = s->nodes[i].has_weights;
        if (!heat_init(w, node))
            return false;
        world_push(w, (struct event){.at_ms = s->nodes[i].joins_ms, .type = EVENT_JOIN, .node = i});
    }
    if (!world_found(w))
        return false;
    for (uint32_t i = 0; i < w->n; i++)
        node_start(w, &w->nodes[i]);
    plan_events(w);
    return !w->out_of_memory;
}

static void world_deinit(struct world *w)
{
    struct sim_result unused = {0};
    w->result = &unused;
    w->over = true;
    for (uint32_t i = 0; w->nodes && i < w->n; i++) {
        struct node *node = &w->nodes[i];
        node_stop(w, node, false, false);
        lead_lost(node);
        log_saved_clear(&node->disk);
        mem_free(node->devices);
        hostile_deinit(node);
        identity_deinit(&node->identity);
    }
    for (size_t i = 0; i < w->n_events; i++)
        message_free_one(w->heap[i].message);
    mem_free(w->heap);
    mem_free(w->nodes);
    mem_free(w->ends);
    mem_free(w->cuts);
    mem_free(w->stream_left);
    mem_free(w->by_member);
    planner_deinit(w);
    mem_free(w->leading);
    check_deinit(w);
    mem_free(w);
}

enum error_code sim_run(const struct scenario *scenario, const struct sim_options *options,
                        struct sim_result *out, struct error *err)
{
    static const struct sim_options silent;
    *out = (struct sim_result){0};
    if (scenario_check(scenario, err))
        return ERROR_INVALID;
    struct world *w = mem_new(sizeof *w);
    if (!w)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a simulation");
    w->scenario = scenario;
    w->options = options ? options : &silent;
    w->result = out;
    w->out_of_memory = !world_init(w);
    while (!w->over && !w->out_of_memory && w->n_events)
        world_step(w);
    const bool failed = w->out_of_memory && !out->violated;
    world_deinit(w);
    return failed ? error_set(err, ERROR_NO_MEMORY, "not enough memory for the simulation")
                  : ERROR_NONE;
}

static bool counts_as_expected(const struct scenario_expect *e, const struct sim_result *r,
                               char *why, size_t size)
{
    const struct {
        const char *what;
        uint64_t is, least, below; /* below 0: not asked for */
    } counts[] = {
        {"elections", r->elections, 0, e->elections_max},
        {"moves", r->moves, e->moves_min, e->moves_max},
        {"suspicions", r->suspicions, 0, e->suspicions_max},
        {"thousandths of a degree", r->hottest_mc, e->hottest_c_min * 1000, 0},
        {"ms at less than full duty", r->throttled_ms, 0, e->throttled_ms_max},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (counts[i].is >= counts[i].least && (!counts[i].below || counts[i].is < counts[i].below))
            continue;
        snprintf(why, size, "%llu %s, expected are %llu or more, and fewer than %llu (0: any)",
                 (unsigned long long)counts[i].is, counts[i].what,
                 (unsigned long long)counts[i].least, (unsigned long long)counts[i].below);
        return false;
    }
    return true;
}

bool sim_as_expected(const struct scenario *scenario, const struct sim_result *r, char *why,
                     size_t size)
{
    assert(size);
    const struct scenario_expect *e = &scenario->expect;
    if (r->violated != (e->violation != 0))
        snprintf(why, size, "%s",
                 r->violated ? r->what : "a violation was expected, there was none");
    else if (r->answered < e->answered_min)
        snprintf(why, size, "%llu requests were answered, %llu are expected",
                 (unsigned long long)r->answered, (unsigned long long)e->answered_min);
    else if (e->failed_max && r->failed >= e->failed_max)
        snprintf(why, size, "%llu requests failed, fewer than %llu are expected",
                 (unsigned long long)r->failed, (unsigned long long)e->failed_max);
    else if (e->pause_ms_max && r->longest_pause_ms > e->pause_ms_max)
        snprintf(why, size, "the longest pause was %llu ms, %llu are allowed",
                 (unsigned long long)r->longest_pause_ms, (unsigned long long)e->pause_ms_max);
    else if (!counts_as_expected(e, r, why, size))
        return false;
    else
        return true;
    return false;
}
