/* What it costs that a device computes in a process of its own, in its sandbox: decoding of one
 * stream, in this process and in a child, in turns; medians and their ratio, of the time on the
 * wall and of processor time. On a machine that is busy with other things the second tells more: it
 * is what both processes computed, waiting left out. Many short rounds (TOKENS 30, ROUNDS 101) keep
 * what the machine does meanwhile out of the ratio.
 *
 *     runner MODEL [TOKENS [ROUNDS [THREADS [SPIN_US [DEVICE]]]]] */
#include "child_world.h"

#include "gpu/cpu_runtime.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS_MAX = 101 };

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_size);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static uint64_t cpu_of_ns(clockid_t clock)
{
    struct timespec now;
    return clock_gettime(clock, &now) ? 0
                                      : (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Of this process and its children that live: the system lists them by the thread that started
 * them. */
static uint64_t cpu_of_all_ns(void)
{
    uint64_t sum = cpu_of_ns(CLOCK_PROCESS_CPUTIME_ID);
    glob_t lists = {0};
    if (glob("/proc/self/task/*/children", 0, NULL, &lists))
        return sum;
    for (size_t i = 0; i < lists.gl_pathc; i++) {
        FILE *list = fopen(lists.gl_pathv[i], "r");
        clockid_t clock;
        for (int pid; list && fscanf(list, "%d", &pid) == 1;) {
            if (!clock_getcpuclockid(pid, &clock))
                sum += cpu_of_ns(clock);
        }
        if (list)
            fclose(list);
    }
    globfree(&lists);
    return sum;
}

/* Microseconds a token, on the wall and of processors (`cpu_us`, of prompt and decoding). */
static double measure(struct child_world *world, uint32_t n_tokens, double *cpu_us)
{
    static struct reply reply;
    const uint64_t begin_ns = cpu_of_all_ns();
    memset(&reply, 0, sizeof reply);
    reply.n_prompt = 8;
    reply.n_predict = n_tokens + 1; /* the first comes with the prompt */
    for (uint32_t i = 0; i < reply.n_prompt; i++)
        reply.tokens[i] = (int32_t)(i * 7 + 3);
    if (!child_world_reply(world, &reply, 600000)) {
        fprintf(stderr, "no reply: %s\n", reply.error.text);
        exit(1);
    }
    *cpu_us = (double)(cpu_of_all_ns() - begin_ns) / 1000 / n_tokens;
    return (double)reply.decode_ns / 1000 / n_tokens;
}

int main(int argc, char **argv)
{
    child_main(argc, argv);
    cpu_runtime_restart(argv); /* both sides with the same settings of libgomp */
    struct error err = {0};
    struct model *model = NULL;
    const char *device = argc > 6 ? argv[6] : "cpu";
    struct child_world here = {.n_stages = 1, .devices = {device}},
                       there = {.n_stages = 1, .devices = {device}};
    const uint32_t n_tokens = argc > 2 ? (uint32_t)atoi(argv[2]) : 100;
    int n_rounds = argc > 3 ? atoi(argv[3]) : 7;
    const uint32_t n_threads = argc > 4 ? (uint32_t)atoi(argv[4]) : 1;
    struct children_options options = {.n_cpu_threads = n_threads,
                                       .spin_ns = argc > 5 ? (uint64_t)atoi(argv[5]) * 1000 : 0};
    double in_process[ROUNDS_MAX], in_child[ROUNDS_MAX], ratio[ROUNDS_MAX];
    double cpu_here[ROUNDS_MAX], cpu_there[ROUNDS_MAX], cpu_ratio[ROUNDS_MAX];
    if (argc < 2 || model_open(argv[1], &model, &err) ||
        gpu_open(&(struct gpu_options){.n_cpu_threads = n_threads,
                                       .skip_other = strcmp(device, "cpu") == 0},
                 &here.gpu, &err) ||
        !(options.gpu = here.gpu) || children_open(&options, &there.children, &err)) {
        fprintf(stderr, "runner MODEL [TOKENS [ROUNDS [THREADS [SPIN_US [DEVICE]]]]]: %s\n",
                err.text);
        return 2;
    }
    n_rounds = n_rounds < 1 ? 1 : n_rounds > ROUNDS_MAX ? ROUNDS_MAX : n_rounds;
    here.model = there.model = model;
    here.options.context = there.options.context = n_tokens + 64;
    here.options.no_prefix_reuse = there.options.no_prefix_reuse = true;
    child_world_open(&here);
    child_world_open(&there);
    measure(&here, n_tokens, &cpu_here[0]);
    measure(&there, n_tokens, &cpu_there[0]);
    for (int i = 0; i < n_rounds; i++) {
        in_process[i] = measure(&here, n_tokens, &cpu_here[i]);
        in_child[i] = measure(&there, n_tokens, &cpu_there[i]);
        ratio[i] = in_child[i] / in_process[i];
        cpu_ratio[i] = cpu_there[i] / cpu_here[i];
    }
    const double a = median(in_process, n_rounds), b = median(in_child, n_rounds);
    printf("%s: %u tokens, %d rounds, %u threads: in process %.1f us a token, in a child %.1f us: "
           "%+.1f us; ratio of the "
           "medians %.4f, median of ratios %.4f\n",
           argv[1], n_tokens, n_rounds, n_threads, a, b, b - a, b / a, median(ratio, n_rounds));
    const double c = median(cpu_here, n_rounds), d = median(cpu_there, n_rounds);
    printf("processor time: in process %.1f us a token, in a child (both) %.1f us; ratio of the "
           "medians %.4f, median of ratios %.4f\n",
           c, d, d / c, median(cpu_ratio, n_rounds));
    child_world_close(&here);
    child_world_close(&there);
    children_close(there.children);
    gpu_close(here.gpu);
    model_close(model);
    return 0;
}
