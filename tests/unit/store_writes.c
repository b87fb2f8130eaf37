#include "store_writes.h"

#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed = 4711, draws;
static struct error err;

void store_writes_seed(uint64_t from)
{
    seed = from;
    draws = 0;
}

uint64_t store_writes_draw(uint64_t below)
{
    return random_at(seed, draws++) % below;
}

static void fill(uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)store_writes_draw(256);
}

void store_writes_entries(struct log_write *write, uint64_t first, uint32_t n, uint64_t term)
{
    write->log.first = first;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t bytes[512];
        struct log_entry entry = {
            .term = term, .type = first + i == 1 ? LOG_MEMBERS : LOG_EVENT, .bytes = bytes};
        entry.size = store_writes_draw(sizeof bytes + 1);
        fill(bytes, entry.size);
        assert_int_equal(log_append(&write->log, &entry, &err), ERROR_NONE);
    }
}

static void add_snapshot(struct log_write *write, uint64_t index, uint64_t term)
{
    uint8_t bytes[2000];
    struct log_snapshot snapshot = {
        .index = index, .term = term, .members_index = 1 + store_writes_draw(index)};
    fill(bytes, sizeof bytes);
    snapshot.members = snapshot.state = bytes;
    snapshot.members_size = store_writes_draw(300);
    snapshot.state_size = store_writes_draw(sizeof bytes);
    assert_int_equal(log_snapshot_copy(&write->snapshot, &snapshot, &err), ERROR_NONE);
    write->has_snapshot = true;
}

/* A write that a replica could make, given what is saved. */
struct log_write store_writes_next(const struct log_saved *saved)
{
    struct log_write write = {0};
    const uint64_t last = saved->log.n ? log_last(&saved->log) : saved->snapshot.index;
    uint64_t term = saved->term;
    if (saved->term == 0 || store_writes_draw(40) == 0) {
        write =
            (struct log_write){.reset = true,
                               .aside = store_writes_draw(2) == 0,
                               .lineage = {1 + store_writes_draw(5), store_writes_draw(UINT64_MAX)},
                               .has_term = true};
        write.term = 1 + store_writes_draw(3);
        store_writes_entries(&write, 1, 1, write.term);
        return write;
    }
    if (store_writes_draw(4) == 0)
        write.has_term = true, write.term = term += 1 + store_writes_draw(2),
        write.vote = store_writes_draw(UINT64_MAX);
    const uint64_t oldest = saved->snapshot.index + 1 > 2 ? saved->snapshot.index + 1 : 2;
    const uint64_t what = store_writes_draw(10);
    if (what == 0) { /* from a leader */
        add_snapshot(&write, last + 1 + store_writes_draw(50), term);
        write.clear_log = true;
    } else if (what == 1 && last > saved->snapshot.index) { /* our own */
        add_snapshot(&write,
                     saved->snapshot.index + 1 + store_writes_draw(last - saved->snapshot.index),
                     term);
        write.keep_from = write.snapshot.index > 3 ? write.snapshot.index - 3 : 1;
    } else if (what < 4 && last > oldest) { /* others take the place of the last */
        store_writes_entries(&write, oldest + store_writes_draw(last - oldest),
                             1 + (uint32_t)store_writes_draw(4), term);
    } else {
        store_writes_entries(&write, last + 1, 1 + (uint32_t)store_writes_draw(4), term);
    }
    return write;
}

static bool same_log(const struct log *a, const struct log *b)
{
    if (a->n != b->n || (a->n && a->first != b->first))
        return false;
    for (uint32_t i = 0; i < a->n; i++) {
        const struct log_entry *x = &a->entries[i], *y = &b->entries[i];
        if (x->term != y->term || x->type != y->type || x->size != y->size ||
            memcmp(x->bytes, y->bytes, x->size))
            return false;
    }
    return true;
}

bool store_writes_same(const struct log_saved *a, const struct log_saved *b)
{
    const struct log_snapshot *x = &a->snapshot, *y = &b->snapshot;
    if (lineage_compare(a->lineage, b->lineage) || a->term != b->term || a->vote != b->vote ||
        x->index != y->index || x->term != y->term || x->members_index != y->members_index ||
        x->members_size != y->members_size || x->state_size != y->state_size)
        return false;
    if (x->index && (memcmp(x->members, y->members, x->members_size) ||
                     memcmp(x->state, y->state, x->state_size)))
        return false;
    return same_log(&a->log, &b->log);
}
