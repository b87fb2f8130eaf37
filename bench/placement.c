/* How long placements take, and how near they are to the best: machines as people have them
 * (house.h, seeds 1 …) and the unit tests' problems (tests/unit/placement_world.h), all goals, five
 * seconds at most.
 *
 *     build/release/bench/placement [problems per row [part of a row's name [devices [gap]]]]
 *
 * gap: as placement_options.enough_gap, 0.02 as the leader of a cluster has it.
 * Times are of the processor, of one thread; "first" is greedy's answer, by itself. */
#include "house.h"
#include "placement/as_run.h"
#include "placement/replicas.h"
#include "placement/solve.h"
#include "placement_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { PROBLEMS_MAX = 200 };

static struct world world;
static double deadline_ms, enough_gap;

struct kind {
    const char *name;
    bool house;
    uint32_t n_devices, n_layers, streams;
    double busy; /* above 1: throughput */
};

static double now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return 1e3 * (double)time.tv_sec + 1e-6 * (double)time.tv_nsec;
}

static bool before_deadline(void *self)
{
    return now_ms() < deadline_ms;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

struct row {
    double firsts_ms[PROBLEMS_MAX], times_ms[PROBLEMS_MAX], gaps[PROBLEMS_MAX],
        improved[PROBLEMS_MAX];
    uint32_t n, proved, impossible;
};

static void solve(struct row *row, const struct placement_problem *problem)
{
    struct placement_options options = placement_options_default();
    struct placement_solution first, solution;
    options.greedy_only = true;
    const double start_ms = now_ms();
    const bool found = !placement_solve(problem, &options, &first, NULL);
    const double then_ms = now_ms();
    options = placement_options_default();
    options.enough_gap = enough_gap;
    options.go_on = before_deadline;
    deadline_ms = then_ms + 5000;
    if (placement_solve(problem, &options, &solution, NULL)) {
        row->impossible++;
        return;
    }
    row->firsts_ms[row->n] = then_ms - start_ms;
    row->times_ms[row->n] = now_ms() - then_ms;
    row->gaps[row->n] = placement_gap(&solution) * 100;
    row->improved[row->n++] = found ? 100 * (first.period_s / solution.period_s - 1) : 0;
    row->proved += solution.proved;
}

static void sort(struct row *row)
{
    qsort(row->firsts_ms, row->n, sizeof *row->firsts_ms, compare);
    qsort(row->times_ms, row->n, sizeof *row->times_ms, compare);
    qsort(row->gaps, row->n, sizeof *row->gaps, compare);
    qsort(row->improved, row->n, sizeof *row->improved, compare);
}

static const char *wanted = "";
static uint32_t wanted_devices;

static void measure(struct kind kind, uint32_t problems)
{
    static struct row row;
    if (!strstr(kind.name, wanted) || (wanted_devices && kind.n_devices != wanted_devices))
        return;
    row.n = row.proved = row.impossible = 0;
    for (uint64_t seed = 1; row.n < problems && seed < 4 * (uint64_t)problems; seed++) {
        struct house house = {0};
        if (kind.house)
            house_make(&house, seed, kind.n_devices, kind.n_layers);
        else
            world_make(&world, seed,
                       (struct world_shape){.n_devices = kind.n_devices,
                                            .n_layers = kind.n_layers,
                                            .tightness = 3,
                                            .twins = seed % 2 ? 0.3 : 0});
        struct placement_problem *problem = kind.house ? &house.problem : &world.problem;
        if (kind.streams > 1) {
            problem->demand.goal = kind.busy > 1 ? PLACEMENT_THROUGHPUT : PLACEMENT_MIX;
            problem->demand.streams = kind.streams;
            problem->demand.busy = kind.busy > 1 ? 0 : kind.busy;
        }
        solve(&row, problem);
        house_deinit(&house);
    }
    if (row.n == 0)
        return;
    sort(&row);
    const uint32_t last = row.n - 1, middle = row.n / 2;
    printf("| %s | %u | %u | %u | %u | %.2f | %.2f | %.2f | %.1f | %.0f | %.2f | %.2f | %.1f |\n",
           kind.name, kind.n_devices, kind.n_layers, kind.streams, row.n, row.firsts_ms[middle],
           row.firsts_ms[last], row.times_ms[middle], row.times_ms[last],
           100.0 * row.proved / row.n, row.gaps[middle], row.gaps[last], row.improved[middle]);
    fflush(stdout);
}

/* The model whole on several groups: as the driver runs it, all 16 streams; five seconds more than
 * for one. */
static void measure_groups(struct kind kind, uint32_t problems)
{
    static struct row row;
    uint32_t several = 0;
    if (!strstr(kind.name, wanted) || (wanted_devices && kind.n_devices != wanted_devices))
        return;
    row.n = row.proved = 0;
    for (uint64_t seed = 1; row.n < problems && seed < 4 * (uint64_t)problems; seed++) {
        struct house house = {0};
        struct placement_options options = placement_options_default();
        struct placement_replicas replicas;
        house_make(&house, seed, kind.n_devices, kind.n_layers);
        house.problem.demand.goal = PLACEMENT_THROUGHPUT;
        house.problem.demand.streams = kind.streams;
        house.problem.demand.replicas = true;
        struct placement_problem own = house.problem;
        struct placement_solution solution;
        options.go_on = before_deadline;
        deadline_ms = now_ms() + 5000;
        const bool found = !placement_solve_as_run(&own, &options, &solution, NULL);
        const struct placement_group one = {solution.placement, kind.streams,
                                            placement_micro_batches(&own)};
        const double start_ms = now_ms();
        deadline_ms = start_ms + 5000;
        if (found && !placement_replicate(&house.problem, &options, &one, solution.proved,
                                          &replicas, NULL)) {
            row.times_ms[row.n] = now_ms() - start_ms;
            row.gaps[row.n] = 100 * (replicas.most_rate / replicas.rate - 1);
            row.firsts_ms[row.n] = replicas.solves;
            row.improved[row.n++] = replicas.rate / replicas.one_rate;
            row.proved += replicas.proved;
            several += replicas.groups.n_groups > 1;
        }
        house_deinit(&house);
    }
    if (row.n == 0)
        return;
    sort(&row);
    const uint32_t last = row.n - 1, middle = row.n / 2;
    printf("| %s | %u | %u | %u | %u | %.0f | %.2f | %.2f | %.0f | %.0f | %.0f | %.2f | %.2f |\n",
           kind.name, kind.n_devices, kind.n_layers, kind.streams, row.n, 100.0 * several / row.n,
           row.improved[middle], row.improved[last], row.firsts_ms[middle], row.times_ms[middle],
           row.times_ms[last], 100.0 * row.proved / row.n, row.gaps[last]);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const uint32_t given = argc > 1 ? (uint32_t)atoi(argv[1]) : 40;
    const uint32_t n = given < PROBLEMS_MAX ? given : PROBLEMS_MAX;
    wanted = argc > 2 ? argv[2] : "";
    wanted_devices = argc > 3 ? (uint32_t)atoi(argv[3]) : 0;
    enough_gap = argc > 4 ? atof(argv[4]) : 0;
    printf("| problems | devices | layers | streams | how many | first, ms, median | worst | to "
           "the end, ms, median | "
           "worst | proved %% | gap %%, median | worst | better than greedy, %%, median |\n"
           "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (uint32_t streams = 1; streams <= 16; streams += 15) {
        measure((struct kind){"world", false, 8, 80, streams, 2}, n);
        measure((struct kind){"world", false, 64, 126, streams, 2}, n / 4 + 1);
        measure((struct kind){"house", true, 4, 80, streams, 2}, n);
        measure((struct kind){"house", true, 8, 80, streams, 2}, n);
        measure((struct kind){"house", true, 16, 80, streams, 2}, n / 2 + 1);
        measure((struct kind){"house", true, 64, 126, streams, 2}, n / 4 + 1);
        measure((struct kind){"house", true, 1000, 126, streams, 2}, n / 10 + 1);
    }
    measure((struct kind){"house, mix", true, 8, 80, 16, 0.5}, n);
    measure((struct kind){"house, mix", true, 64, 126, 16, 0.5}, n / 10 + 1);
    printf("\n| problems | devices | layers | streams | how many | in several groups %% | times as "
           "fast as one, median | "
           "best | groups solved, median | ms, median | worst | proved %% | gap %%, worst |\n"
           "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    measure_groups((struct kind){"groups", true, 4, 40, 16, 2}, n);
    measure_groups((struct kind){"groups", true, 8, 40, 16, 2}, n);
    measure_groups((struct kind){"groups", true, 8, 80, 16, 2}, n);
    measure_groups((struct kind){"groups", true, 16, 80, 16, 2}, n / 2 + 1);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("\npeak memory of this program: %.0f MiB\n", (double)usage.ru_maxrss / 1024);
    return 0;
}
