#include "cluster_facts.h"

#include "base/random.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct world_facts {
    struct fact *table;
    size_t n, capacity; /* a power of two */
};

struct world_facts *world_facts_new(void)
{
    return calloc(1, sizeof(struct world_facts));
}

void world_facts_free(struct world_facts *facts)
{
    free(facts->table);
    free(facts);
}

void world_broken(const struct world *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "seed %" PRIu64 ", %" PRIu64 " ms: ", w->seed, w->now_ms);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

static uint64_t fact_hash(const struct fact *f)
{
    return random_mix(f->lineage.generation ^
                      random_mix(f->lineage.founder ^ random_mix(f->key + (uint64_t)f->kind)));
}

static struct fact *fact_slot(const struct world_facts *facts, const struct fact *f)
{
    for (size_t i = fact_hash(f);; i++) {
        struct fact *slot = &facts->table[i & (facts->capacity - 1)];
        if (!slot->kind || (slot->kind == f->kind && slot->key == f->key &&
                            lineage_compare(slot->lineage, f->lineage) == 0))
            return slot;
    }
}

static void grow_facts(struct world_facts *facts)
{
    struct world_facts bigger = {.capacity = facts->capacity ? 2 * facts->capacity : 4096};
    bigger.table = calloc(bigger.capacity, sizeof *bigger.table);
    for (size_t i = 0; i < facts->capacity; i++) {
        if (facts->table[i].kind)
            *fact_slot(&bigger, &facts->table[i]) = facts->table[i];
    }
    bigger.n = facts->n;
    free(facts->table);
    *facts = bigger;
}

void world_facts_check(struct world *w, struct fact fact, const char *what)
{
    struct world_facts *facts = w->facts;
    if (2 * facts->n >= facts->capacity)
        grow_facts(facts);
    struct fact *slot = fact_slot(facts, &fact);
    if (!slot->kind) {
        *slot = fact;
        facts->n++;
    } else if (slot->value != fact.value) {
        world_broken(w,
                     "%s differs: generation %" PRIu64 " of %" PRIu64 ", %" PRIu64 ": node %" PRIu64
                     " has %" PRIx64 ", node %" PRIu64 " had %" PRIx64,
                     what, fact.lineage.generation, fact.lineage.founder, fact.key, fact.by,
                     fact.value, slot->by, slot->value);
    }
}
