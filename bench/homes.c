/* What the best placement is worth beside what others do, on random homes (homes_world.h, seeds 1
 * …).
 *
 * For each home the predicted decode tokens/s of our placement over those of
 *
 *     memory   layers in proportion to free memory          exo, llama.cpp
 *     flops    in proportion to FLOP/s                       cake
 *     equal    as many for each                              distributed-llama
 *     score    in proportion to the weighted score           (ours, without a solver)
 *     careful  the fastest machine that can hold the model alone, its devices split as well as can
 *              be; by memory over all machines only where none can
 *     chosen   by memory over the devices that our placement uses: what is left is order and cuts
 *
 * A policy gets one device a machine, as those programs take it: the graphics cards, the processor
 * of a machine without one. Where that leads to nothing, all devices. Each time in the home's order
 * and from the largest share to the smallest, and the faster answer counts. All are forecast by the
 * same formulas (placement/cost.h).
 *
 *     build/release/bench/homes [-n HOMES] [--csv FILE] */
#include "base/clock.h"
#include "homes_world.h"
#include "placement/cost.h"
#include "placement/policy.h"
#include "placement/solve.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOMES_MAX = 10000, CAREFUL = 4, CHOSEN = 5, SIDES = 6 };

static const char *const side_names[SIDES] = {"memory", "flops",   "equal",
                                              "score",  "careful", "chosen"};

struct result {
    bool needs_several, proved;
    double best;
    double others[SIDES]; /* tokens/s; 0: found nothing */
};

static struct home home;
static struct result results[HOMES_MAX];
static uint64_t deadline_ns;

static bool before_deadline(void *self)
{
    return clock_now_ns() < deadline_ns;
}

static double rate_of(const struct placement_problem *problem, const struct placement *placement)
{
    const struct placement_cost cost = placement_decode_cost(problem, placement);
    return placement_decode_tokens_per_s(problem, &cost);
}

/* Tokens/s, or 0; *solution where it is not 0. */
static double solve(const struct placement_problem *problem, struct placement_solution *solution)
{
    struct placement_options options = placement_options_default();
    deadline_ns = clock_now_ns() + 5000000000u;
    options.go_on = before_deadline;
    struct error err;
    const enum error_code code = placement_solve(problem, &options, solution, &err);
    if (code && code != ERROR_NOT_FOUND) { /* of a home that is none, no figure is of use */
        fprintf(stderr, "homes: seed %llu: %s\n", (unsigned long long)home.seed, err.text);
        exit(1);
    }
    return code ? 0 : rate_of(problem, &solution->placement);
}

/* ---- the others ------------------------------------------------------------------------- */

struct listed {
    uint32_t device;
    double share;
};

static int by_share(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    if (x->share != y->share)
        return x->share > y->share ? -1 : 1;
    return x->device < y->device ? -1 : x->device > y->device;
}

/* The problem with its devices in another order: policies take them as listed. */
static double in_order(const struct listed *order, uint32_t n, enum placement_policy policy)
{
    struct placement_device devices[HOME_DEVICES];
    struct placement_link links[HOME_DEVICES * HOME_DEVICES];
    struct placement_problem problem = home.problem;
    struct placement placement;
    problem.n_devices = n;
    problem.devices = devices;
    problem.links = links;
    for (uint32_t i = 0; i < n; i++) {
        devices[i] = home.devices[order[i].device];
        for (uint32_t j = 0; j < n; j++)
            links[i * n + j] = *placement_link(&home.problem, order[i].device, order[j].device);
    }
    return placement_by_policy(&problem, policy, &placement, NULL) ? 0
                                                                   : rate_of(&problem, &placement);
}

static double by_policy(enum placement_policy policy, const bool *is_listed)
{
    struct listed order[HOME_DEVICES];
    double scores[HOME_DEVICES];
    uint32_t n = 0;
    placement_scores(&home.problem, &PLACEMENT_WEIGHTS_DEFAULT, scores);
    for (uint32_t d = 0; d < home.problem.n_devices; d++) {
        const struct placement_device *device = &home.devices[d];
        const double share = policy == PLACEMENT_BY_FLOPS ? device->prefill_flops[0]
                             : policy == PLACEMENT_BY_SCORE
                                 ? scores[d]
                                 : (double)placement_device_bytes(device);
        if (is_listed[d])
            order[n++] = (struct listed){d, share};
    }
    const double as_listed = in_order(order, n, policy);
    qsort(order, n, sizeof *order, by_share);
    return fmax(as_listed, in_order(order, n, policy));
}

/* The best that one machine can do alone. */
static double alone(void)
{
    double best = 0;
    struct placement_solution solution;
    for (uint32_t d = 0; d < home.problem.n_devices; d++) {
        if (d && !strcmp(home.devices[d].node, home.devices[d - 1].node))
            continue;
        for (uint32_t other = 0; other < home.problem.n_devices; other++)
            home.devices[other].excluded =
                strcmp(home.devices[other].node, home.devices[d].node) != 0;
        best = fmax(best, solve(&home.problem, &solution));
    }
    for (uint32_t d = 0; d < home.problem.n_devices; d++)
        home.devices[d].excluded = false;
    return best;
}

/* False: our solver finds nothing either. */
static bool measure(struct result *result)
{
    static const bool all[HOME_DEVICES] = {true, true, true, true, true, true, true, true,
                                           true, true, true, true, true, true, true, true};
    struct placement_solution solution;
    bool chosen[HOME_DEVICES] = {false};
    *result = (struct result){.needs_several = home.needs_several};
    result->best = solve(&home.problem, &solution);
    if (!(result->best > 0))
        return false;
    result->proved = solution.proved;
    for (uint32_t i = 0; i < solution.placement.n_stages; i++)
        chosen[solution.placement.stages[i].device] = true;
    for (int policy = PLACEMENT_BY_MEMORY; policy <= PLACEMENT_BY_SCORE; policy++) {
        result->others[policy] = by_policy((enum placement_policy)policy, home.is_main);
        if (!(result->others[policy] > 0))
            result->others[policy] = by_policy((enum placement_policy)policy, all);
    }
    result->others[CHOSEN] = by_policy(PLACEMENT_BY_MEMORY, chosen);
    result->others[CAREFUL] = alone();
    if (!(result->others[CAREFUL] > 0))
        result->others[CAREFUL] = result->others[PLACEMENT_BY_MEMORY];
    return true;
}

/* ---- the table ---------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double quantile(const double *sorted, uint32_t n, double part)
{
    const double at = part * (n - 1);
    const uint32_t low = (uint32_t)at;
    return low + 1 < n ? sorted[low] + (at - low) * (sorted[low + 1] - sorted[low]) : sorted[low];
}

enum which { ALL, NEEDS_SEVERAL, FITS_ONE };

static void row(uint32_t n_results, enum which which, int side)
{
    static const char *const which_names[] = {"all", "needs several", "fits one"};
    static double ratios[HOMES_MAX];
    uint32_t n = 0, n_homes = 0, above = 0;
    for (uint32_t i = 0; i < n_results; i++) {
        if (which != ALL && results[i].needs_several != (which == NEEDS_SEVERAL))
            continue;
        n_homes++;
        if (!(results[i].others[side] > 0))
            continue;
        ratios[n] = results[i].best / results[i].others[side];
        above += ratios[n++] > 1.3;
    }
    if (n == 0)
        return;
    qsort(ratios, n, sizeof *ratios, compare);
    printf("| %s | %s | %u | %.2f | %.2f | **%.2f** | %.2f | %.2f | %.0f %% | %.1f %% |\n",
           which_names[which], side_names[side], n_homes, quantile(ratios, n, 0.1),
           quantile(ratios, n, 0.25), quantile(ratios, n, 0.5), quantile(ratios, n, 0.75),
           quantile(ratios, n, 0.9), 100.0 * above / n, 100.0 * (n_homes - n) / n_homes);
}

static void write_row(FILE *csv, uint64_t seed, const struct result *result)
{
    fprintf(csv, "%llu,%s,%s,%d,%u,%u,%.4f", (unsigned long long)seed, home.model, home.type,
            home.needs_several, home.n_machines, home.problem.n_devices, result->best);
    for (int side = 0; side < SIDES; side++)
        fprintf(csv, ",%.4f", result->others[side]);
    fprintf(csv, "\n");
}

static bool run(uint32_t wanted, FILE *csv)
{
    uint32_t n = 0, no_model = 0, nothing = 0, proved = 0;
    const uint64_t start_ns = clock_now_ns();
    if (csv) {
        fprintf(csv, "seed,model,type,needs_several,machines,devices,best");
        for (int side = 0; side < SIDES; side++)
            fprintf(csv, ",%s", side_names[side]);
        fprintf(csv, "\n");
    }
    for (uint64_t seed = 1; n < wanted; seed++) {
        if (!home_make(&home, seed)) {
            no_model++;
        } else if (!measure(&results[n])) {
            nothing++;
        } else {
            if (csv)
                write_row(csv, seed, &results[n]);
            proved += results[n++].proved;
        }
    }
    printf("%u homes, %u proved optimal, %.0f s; left out: %u where no model fits, %u where no "
           "placement exists\n\n",
           n, proved, (double)(clock_now_ns() - start_ns) / 1e9, no_model, nothing);
    printf("Our tokens/s over theirs:\n\n");
    printf("| homes | by | n | 10 %% | 25 %% | median | 75 %% | 90 %% | > 1.3 | finds nothing |\n");
    printf("|---|---|---|---|---|---|---|---|---|---|\n");
    for (int which = ALL; which <= FITS_ONE; which++) {
        for (int side = 0; side < SIDES; side++)
            row(n, (enum which)which, side);
    }
    return !csv || (fflush(csv) == 0 && !ferror(csv));
}

int main(int argc, char **argv)
{
    uint32_t wanted = 1000;
    const char *path = NULL;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-n") && i + 1 < argc)
            wanted = (uint32_t)strtoul(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--csv") && i + 1 < argc)
            path = argv[++i];
        else
            wanted = 0;
    }
    if (wanted == 0 || wanted > HOMES_MAX) {
        fprintf(stderr, "usage: homes [-n 1 to %d] [--csv FILE]\n", HOMES_MAX);
        return 2;
    }
    FILE *csv = path ? fopen(path, "w") : NULL;
    if (path && !csv) {
        perror(path);
        return 1;
    }
    const bool written = run(wanted, csv);
    if (csv && (fclose(csv) || !written)) {
        perror(path);
        return 1;
    }
    return 0;
}
