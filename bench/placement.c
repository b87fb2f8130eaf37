/* How long placements take: random homes (tests/unit/placement_world.c, seeds 1 …), both goals.
 * Prints the median and the worst time to a proof, and for 64 devices what is left after five seconds.
 *
 *     build/release/bench/placement [homes per row] */
#include "base/clock.h"
#include "placement/solve.h"
#include "placement_world.h"

#include <stdio.h>
#include <stdlib.h>

static struct world world;
static uint64_t deadline_ns;

static bool before_deadline(void *self)
{
    return clock_now_ns() < deadline_ns;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

enum { HOMES_MAX = 200 };

static void row(uint32_t n_devices, uint32_t n_layers, uint32_t streams, uint32_t homes, double seconds)
{
    double times_ms[HOMES_MAX], gaps[HOMES_MAX], firsts_ms[HOMES_MAX];
    uint32_t n = 0, proved = 0;
    double nodes = 0, spent_ms = 0;
    for (uint64_t seed = 1; n < homes && seed < 4 * (uint64_t)homes; seed++) {
        world_make(&world, seed,
                   (struct world_shape){
                       .n_devices = n_devices, .n_layers = n_layers, .tightness = 3, .twins = seed % 2 ? 0.3 : 0});
        if (streams > 1) {
            world.problem.demand.goal = PLACEMENT_THROUGHPUT;
            world.problem.demand.streams = streams;
        }
        struct placement_options options = placement_options_default();
        struct placement_solution solution;
        options.greedy_only = true;
        const uint64_t start_ns = clock_now_ns();
        if (placement_solve(&world.problem, &options, &solution, NULL) == ERROR_NOT_FOUND)
            continue;
        firsts_ms[n] = (double)(clock_now_ns() - start_ns) / 1e6;
        options = placement_options_default();
        options.go_on = before_deadline;
        const uint64_t then_ns = clock_now_ns();
        deadline_ns = then_ns + (uint64_t)(seconds * 1e9);
        if (placement_solve(&world.problem, &options, &solution, NULL))
            continue;
        times_ms[n] = (double)(clock_now_ns() - then_ns) / 1e6;
        gaps[n] = placement_gap(&solution) * 100;
        spent_ms += times_ms[n++];
        proved += solution.proved;
        nodes += (double)solution.nodes;
    }
    if (n == 0)
        return;
    qsort(times_ms, n, sizeof *times_ms, compare);
    qsort(gaps, n, sizeof *gaps, compare);
    qsort(firsts_ms, n, sizeof *firsts_ms, compare);
    printf("%7u %6u %7u %6u %8.2f %8.2f %9.2f %9.1f %8.1f %8.2f %8.2f\n", n_devices, n_layers, streams, n,
           firsts_ms[n / 2], firsts_ms[n - 1], times_ms[n / 2], times_ms[n - 1], 100.0 * proved / n, gaps[n / 2],
           nodes / spent_ms);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const uint32_t given = argc > 1 ? (uint32_t)atoi(argv[1]) : 40, homes = given < HOMES_MAX ? given : HOMES_MAX;
    printf("                                greedy            search, ms\n");
    printf("devices layers streams  homes   median    worst    median     worst  proved%%  gap%%med nodes/ms\n");
    for (uint32_t streams = 1; streams <= 16; streams += 15) {
        row(2, 32, streams, homes, 5);
        row(4, 80, streams, homes, 5);
        row(8, 32, streams, homes, 5);
        row(8, 80, streams, homes, 5);
        row(8, 126, streams, homes, 5);
        row(16, 80, streams, homes / 8 + 1, 5);
        row(64, 126, streams, homes / 16 + 1, 5);
    }
    return 0;
}
