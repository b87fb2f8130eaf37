/* The map of a pool of cache cells: whatever sequences do, each finds what it wrote. */
#include "base/random.h"
#include "engine/batch_shape.h"
#include "engine/kv_map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { SLOTS = 5, CONTEXT = 6 * KV_PADDING - 3, EXTENTS = 11, STEPS = 20000 };

struct world {
    struct kv_map map;
    uint32_t cells[EXTENTS * KV_PADDING];
    uint32_t wanted[SLOTS][CONTEXT]; /* what each wrote */
    uint32_t lengths[SLOTS];
    uint32_t n_written;
};

static uint32_t drawn(uint64_t seed, uint64_t *draws, uint32_t below)
{
    return (uint32_t)(random_at(seed, (*draws)++) % below);
}

static void write_rows(struct world *w, uint32_t slot, uint32_t end)
{
    const uint32_t first = w->lengths[slot], n_unused = w->map.n_unused;
    const uint32_t need = kv_map_need(&w->map, slot, first, end);
    struct kv_claim claim;
    for (uint32_t i = first / KV_PADDING; i < kv_map_extents(end); i++) {
        if (!kv_map_claim(&w->map, slot, i, &claim)) {
            assert_true(need > n_unused);
            assert_int_equal(w->map.n_unused, 0);
            kv_map_cut(&w->map, slot, first);
            return;
        }
        memmove(w->cells + claim.to * KV_PADDING, w->cells + claim.from * KV_PADDING,
                KV_PADDING * sizeof *w->cells);
    }
    assert_int_equal(w->map.n_unused + need, n_unused);
    for (; w->lengths[slot] < end; w->lengths[slot]++) {
        const uint32_t at = w->lengths[slot];
        w->wanted[slot][at] = ++w->n_written;
        w->cells[kv_map_cell(&w->map, slot, at)] = w->n_written;
    }
}

static void copy_slot(struct world *w, uint32_t from, uint32_t to, uint32_t length)
{
    struct kv_claim claim;
    const uint32_t whole = length / KV_PADDING * KV_PADDING;
    kv_map_share(&w->map, from, to, length);
    w->lengths[to] = whole;
    if (length > whole && kv_map_claim(&w->map, to, whole / KV_PADDING, &claim)) {
        for (uint32_t i = whole; i < length; i++)
            w->cells[kv_map_cell(&w->map, to, i)] = w->cells[kv_map_cell(&w->map, from, i)];
        w->lengths[to] = length;
    }
    memcpy(w->wanted[to], w->wanted[from], w->lengths[to] * sizeof **w->wanted);
}

static void check(const struct world *w)
{
    uint32_t n_refs[EXTENTS] = {0}, n_used = 0, n_shared = 0;
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        assert_int_equal(w->map.n_held[slot], kv_map_extents(w->lengths[slot]));
        for (uint32_t i = 0; i < w->lengths[slot]; i++)
            assert_int_equal(w->cells[kv_map_cell(&w->map, slot, i)], w->wanted[slot][i]);
        for (uint32_t i = 0; i < w->map.n_held[slot]; i++)
            n_refs[w->map.extents[slot * w->map.n_each + i]]++;
    }
    for (uint32_t i = 0; i < EXTENTS; i++) {
        assert_int_equal(n_refs[i], w->map.n_refs[i]);
        n_used += n_refs[i] > 0;
        n_shared += n_refs[i] > 1;
    }
    assert_int_equal(n_used + w->map.n_unused, EXTENTS);
    assert_int_equal(n_shared, w->map.n_shared);
}

static void test_each_finds_what_it_wrote(void **state)
{
    static struct world w;
    uint64_t draws = 0;
    (void)state;
    memset(&w, 0, sizeof w);
    assert_int_equal(kv_map_init(&w.map, SLOTS, CONTEXT, EXTENTS * KV_PADDING, NULL), ERROR_NONE);
    for (uint32_t i = 0; i < STEPS; i++) {
        const uint32_t slot = drawn(1, &draws, SLOTS), other = drawn(1, &draws, SLOTS);
        const uint32_t length = w.lengths[slot], what = drawn(1, &draws, 10);
        if (what < 6 && length < CONTEXT)
            write_rows(&w, slot, length + 1 + drawn(1, &draws, CONTEXT - length) / (1 + what));
        else if (what < 8 && other != slot)
            copy_slot(&w, slot, other, length ? drawn(1, &draws, length + 1) : 0);
        else
            kv_map_cut(&w.map, slot, w.lengths[slot] = length ? drawn(1, &draws, length) : 0);
        if (i % 16 == 0)
            check(&w);
    }
    check(&w);
    kv_map_deinit(&w.map);
}

/* A prompt that many begin with is held once. */
static void test_prefixes_are_held_once(void **state)
{
    struct kv_map map;
    struct kv_claim claim;
    (void)state;
    assert_int_equal(kv_map_init(&map, 40, 4 * KV_PADDING, 43 * KV_PADDING, NULL), ERROR_NONE);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(kv_map_claim(&map, 0, i, &claim));
    for (uint32_t slot = 1; slot < 40; slot++) {
        kv_map_share(&map, 0, slot, 3 * KV_PADDING + 7);
        assert_true(kv_map_claim(&map, slot, 3, &claim));
        assert_int_equal(claim.from, claim.to);
    }
    assert_int_equal(map.n_unused, 1);
    assert_int_equal(kv_map_alone(&map, 5), 1);
    assert_int_equal(kv_map_need(&map, 5, 3 * KV_PADDING - 1, 3 * KV_PADDING), 1);
    for (uint32_t slot = 0; slot < 40; slot++)
        kv_map_cut(&map, slot, 0);
    assert_int_equal(map.n_unused, 43);
    kv_map_deinit(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_finds_what_it_wrote),
        cmocka_unit_test(test_prefixes_are_held_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
