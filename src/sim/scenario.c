#include "sim/scenario.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

static const char *const fault_names[FAULT_TYPES] = {
    "kill",      "power",  "pause",  "cut",  "cut_one",   "isolate",
    "split",     "loss",   "double", "slow", "slow_disk", "full_disk",
    "lost_disk", "device", "runner", "heat", "memory",    "clock"};

static const char *const bug_names[SCENARIO_BUGS] = {
    "none", "half-cache", "no-layer", "forgets-text", "hands-on-twice", "believes-anybody"};

const char *scenario_bug_name(enum scenario_bug bug)
{
    assert((size_t)bug < sizeof bug_names / sizeof *bug_names);
    return bug_names[bug];
}

const char *scenario_fault_name(enum scenario_fault_type type)
{
    return fault_names[type];
}

void scenario_deinit(struct scenario *s)
{
    if (!s)
        return;
    mem_free(s->nodes);
    mem_free(s->instances);
    mem_free(s->streams);
    mem_free(s->faults);
    *s = (struct scenario){0};
}

static bool copy_array(const void *from, uint32_t n, size_t size, void *out)
{
    void *to = mem_new_array((size_t)n + 1, size);
    if (to && n)
        memcpy(to, from, n * size);
    memcpy(out, &to, sizeof to);
    return to != NULL;
}

enum error_code scenario_copy(struct scenario *to, const struct scenario *from, struct error *err)
{
    assert(to != from);
    *to = *from;
    to->nodes = NULL, to->instances = NULL, to->streams = NULL, to->faults = NULL;
    if (copy_array(from->nodes, from->n_nodes, sizeof *from->nodes, &to->nodes) &&
        copy_array(from->instances, from->n_instances, sizeof *from->instances, &to->instances) &&
        copy_array(from->streams, from->n_streams, sizeof *from->streams, &to->streams) &&
        copy_array(from->faults, from->n_faults, sizeof *from->faults, &to->faults))
        return ERROR_NONE;
    scenario_deinit(to);
    return error_set(err, ERROR_NO_MEMORY, "not enough memory for a scenario");
}

#define YEAR_MS (UINT64_C(366) * 24 * 3600 * 1000)

/* Of `amount`; 0: whatever it is does no harm, or is looked at by itself. */
static const uint64_t most_of[FAULT_TYPES] = {
    [FAULT_LOSS] = 1000000,       [FAULT_DOUBLE] = 1000000, [FAULT_SLOW] = 3600000,
    [FAULT_SLOW_DISK] = 3600000,  [FAULT_HEAT] = 1000,      [FAULT_MEMORY] = UINT64_C(1) << 24,
    [FAULT_CLOCK] = 10 * YEAR_MS,
};

static enum error_code check_fault(const struct scenario *s, uint32_t i, struct error *err)
{
    assert(i < s->n_faults);
    const struct scenario_fault *fault = &s->faults[i];
    const bool device = fault->kind == FAULT_DEVICE || fault->kind == FAULT_RUNNER;
    if (fault->node >= s->n_nodes || fault->other >= s->n_nodes)
        return error_set(err, ERROR_INVALID, "fault %u: there is no such node", i);
    if ((fault->kind == FAULT_CUT || fault->kind == FAULT_CUT_ONE) && fault->node == fault->other)
        return error_set(err, ERROR_INVALID, "fault %u: a node has no link to itself", i);
    if (device && fault->amount >= s->nodes[fault->node].devices)
        return error_set(err, ERROR_INVALID, "fault %u: there is no such device", i);
    if (most_of[fault->kind] && fault->amount > most_of[fault->kind])
        return error_set(err, ERROR_INVALID, "fault %u: the amount of '%s' is at most %llu", i,
                         scenario_fault_name((enum scenario_fault_type)fault->kind),
                         (unsigned long long)most_of[fault->kind]);
    if (fault->at_ms > s->chaos_ms)
        return error_set(err, ERROR_INVALID, "fault %u: it begins after the end of the faults", i);
    return ERROR_NONE;
}

enum error_code scenario_check(const struct scenario *s, struct error *err)
{
    if (!s->n_nodes || !s->n_instances)
        return error_set(err, ERROR_INVALID, "a scenario needs a node and an instance");
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        if (s->nodes[i].hostile && (!i || s->n_nodes > SCENARIO_ROLES_NODES))
            return error_set(
                err, ERROR_INVALID,
                "node %u: the first of all, and one of more than %d, cannot be hostile", i,
                SCENARIO_ROLES_NODES);
        if (s->nodes[i].load_c && s->nodes[i].load_c < SCENARIO_LOAD_C_MIN)
            return error_set(err, ERROR_INVALID,
                             "node %u: load_c must be 0 or at least %d, because the air has 25", i,
                             SCENARIO_LOAD_C_MIN);
    }
    for (uint32_t i = 0; i < s->n_streams; i++) {
        if (s->streams[i].node >= s->n_nodes || s->streams[i].instance >= s->n_instances)
            return error_set(err, ERROR_INVALID, "stream %u: there is no such node or instance", i);
        if (s->nodes[s->streams[i].node].hostile)
            return error_set(err, ERROR_INVALID, "stream %u: it asks a hostile node", i);
    }
    for (uint32_t i = 0; i < s->n_faults; i++) {
        if (check_fault(s, i, err))
            return err ? err->code : ERROR_INVALID;
    }
    return ERROR_NONE;
}
