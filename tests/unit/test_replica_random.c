/* The log under everything that a home can do to it: 300 seeds of 1 to 7 nodes with lost, doubled
 * and late messages, cut links, crashes that lose what was not durable, members that come and
 * voters that change. In a third of them the log may be founded anew. The checkers are in
 * cluster_world.c.
 *
 * test-replica_random [FIRST-SEED [SEEDS]] */
#include "cluster_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static uint64_t first_seed = 1, n_seeds = 300;

struct sums {
    uint64_t committed, restored, sent, refused, generations;
};

static void run_seed(uint64_t seed, struct sums *sums)
{
    struct world *w = calloc(1, sizeof *w);
    char why[512];
    world_init(w, seed, 1 + (uint32_t)(seed % WORLD_NODES), seed % 3 == 0 ? 5000 : 0);
    world_run(w, 60 * 1000, true);
    world_heal(w);
    world_run(w, 40 * 1000, false);
    if (!world_submit(w)) {
        world_describe(w, stderr);
        fail_msg("seed %llu: nobody takes an event after all is well", (unsigned long long)seed);
    }
    world_run(w, 2000, false);
    if (!world_agrees(w, why, sizeof why)) {
        world_describe(w, stderr);
        fail_msg("seed %llu: %s", (unsigned long long)seed, why);
    }
    sums->committed += w->committed;
    sums->restored += w->restored;
    sums->sent += w->sent;
    sums->refused += w->refused;
    sums->generations += replica_status(w->nodes[0].replica).lineage.generation - 1;
    world_deinit(w);
    free(w);
}

static void random_worlds(void **unused)
{
    struct sums sums = {0};
    for (uint64_t seed = first_seed; seed < first_seed + n_seeds; seed++)
        run_seed(seed, &sums);
    print_message(
        "# %llu seeds: %llu entries, %llu snapshots taken up, %llu re-foundings, %llu messages, "
        "%llu of them refused\n",
        (unsigned long long)n_seeds, (unsigned long long)sums.committed,
        (unsigned long long)sums.restored, (unsigned long long)sums.generations,
        (unsigned long long)sums.sent, (unsigned long long)sums.refused);
    if (n_seeds >= 100) { /* the worlds were not idle */
        assert_true(sums.committed > 10 * n_seeds);
        assert_true(sums.restored > n_seeds);
        assert_true(sums.generations > 0);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        n_seeds = strtoull(argv[2], NULL, 10);
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_worlds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
