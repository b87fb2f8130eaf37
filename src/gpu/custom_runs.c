#include "gpu/custom_runs.h"

#include "base/mem.h"
#include "base/spin.h"
#include "gpu/cpu_runtime.h"
#include "gpu/custom_op.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Where the threads of a run meet. */
struct meeting {
    uint32_t spins; /* before a thread sleeps */
    _Atomic uint32_t n_come, number, n_asleep;
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

struct run_step {
    struct ggml_tensor *out;
    custom_share *share;
    void *arg;
    bool meets; /* all threads, before it */
};

struct run {
    struct run_step *steps;
    uint32_t n_steps;
    struct meeting meeting;
};

struct custom_runs {
    struct run *runs;
    uint32_t n_runs, n_steps, spins;
    struct run_step steps[];
};

/* ---- meetings -------------------------------------------------------------------------------- */

static bool meeting_is_over(const struct meeting *meeting, uint32_t number)
{
    return atomic_load_explicit(&meeting->number, memory_order_seq_cst) != number;
}

static void meeting_sleep(struct meeting *meeting, uint32_t number)
{
    pthread_mutex_lock(&meeting->lock);
    atomic_fetch_add_explicit(&meeting->n_asleep, 1, memory_order_seq_cst);
    while (!meeting_is_over(meeting, number))
        pthread_cond_wait(&meeting->wake, &meeting->lock);
    atomic_fetch_sub_explicit(&meeting->n_asleep, 1, memory_order_relaxed);
    pthread_mutex_unlock(&meeting->lock);
}

/* The last of n begins the next one. Who will sleep says so before he looks once more whether it
 * has begun, and the last looks for sleepers after it has. */
static void meeting_join(struct meeting *meeting, uint32_t n)
{
    const uint32_t number = atomic_load_explicit(&meeting->number, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&meeting->n_come, 1, memory_order_acq_rel) + 1 == n) {
        atomic_store_explicit(&meeting->n_come, 0, memory_order_relaxed);
        atomic_store_explicit(&meeting->number, number + 1, memory_order_seq_cst);
        if (atomic_load_explicit(&meeting->n_asleep, memory_order_seq_cst)) {
            pthread_mutex_lock(&meeting->lock);
            pthread_cond_broadcast(&meeting->wake);
            pthread_mutex_unlock(&meeting->lock);
        }
        return;
    }
    for (uint32_t i = 0; i < meeting->spins; i++) {
        if (meeting_is_over(meeting, number))
            return;
        spin_pause();
    }
    meeting_sleep(meeting, number);
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void run_share(struct ggml_tensor *out, int ith, int nth, void *arg)
{
    struct run *run = arg;
    (void)out;
    for (uint32_t i = 0; i < run->n_steps; i++) {
        const struct run_step *step = &run->steps[i];
        if (step->meets)
            meeting_join(&run->meeting, (uint32_t)nth);
        step->share(step->out, ith, nth, step->arg);
    }
}

enum { ADDED_AT_ONCE = 16 }; /* floats: a count that compilers make vectors of */

/* GGML_OP_ADD; the result may stand where a source does. */
static void add_share(struct ggml_tensor *out, int ith, int nth, void *arg)
{
    const float *a = out->src[0]->data, *b = out->src[1]->data;
    float *to = out->data;
    const int64_t n = ggml_nelements(out), n_lots = (n + ADDED_AT_ONCE - 1) / ADDED_AT_ONCE;
    int64_t i = n_lots * ith / nth * ADDED_AT_ONCE, end = n_lots * (ith + 1) / nth * ADDED_AT_ONCE;
    (void)arg;
    end = end < n ? end : n;
    for (; i + ADDED_AT_ONCE <= end; i += ADDED_AT_ONCE) {
        float sums[ADDED_AT_ONCE];
        for (int k = 0; k < ADDED_AT_ONCE; k++)
            sums[k] = a[i + k] + b[i + k];
        memcpy(to + i, sums, sizeof sums);
    }
    for (; i < end; i++)
        to[i] = a[i] + b[i];
}

/* ---- making them ----------------------------------------------------------------------------- */

static bool is_whole_floats(const struct ggml_tensor *tensor)
{
    return tensor->type == GGML_TYPE_F32 && ggml_is_contiguous(tensor);
}

static bool is_plain_addition(const struct ggml_tensor *node)
{
    return node->op == GGML_OP_ADD && ggml_are_same_shape(node->src[0], node->src[1]) &&
           is_whole_floats(node) && is_whole_floats(node->src[0]) && is_whole_floats(node->src[1]);
}

/* False: it can be no step. */
static bool step_of(struct ggml_tensor *node, struct run_step *out)
{
    const struct custom_op *op = custom_op_of(node);
    const bool is_custom = node->op == GGML_OP_CUSTOM;
    *out = is_custom ? (struct run_step){node, op->share, op->arg, false}
                     : (struct run_step){node, add_share, NULL, false};
    return is_custom || is_plain_addition(node);
}

static bool overlap(const struct ggml_tensor *a, const struct ggml_tensor *b)
{
    const char *at = a->data, *other = b->data;
    return at < other + ggml_nbytes(b) && other < at + ggml_nbytes(a);
}

static bool step_writes(const struct run_step *step, const struct ggml_tensor *tensor)
{
    const int32_t number = step->share == add_share ? 0 : custom_op_of(step->out)->scratch;
    const struct ggml_tensor *scratch = number ? step->out->src[number - 1] : NULL;
    return overlap(step->out, tensor) || (scratch && overlap(scratch, tensor));
}

static bool step_writes_sources(const struct run_step *step, const struct run_step *of)
{
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        if (of->out->src[i] && step_writes(step, of->out->src[i]))
            return true;
    }
    return step_writes(step, of->out);
}

/* Must one have ended before the other begins? Then either writes what the other uses. */
static bool steps_depend(const struct run_step *a, const struct run_step *b)
{
    return step_writes_sources(a, b) || step_writes_sources(b, a);
}

static void run_set_meetings(struct run *run)
{
    for (uint32_t i = 1, first = 0; i < run->n_steps; i++) {
        for (uint32_t k = first; k < i && !run->steps[i].meets; k++)
            run->steps[i].meets = steps_depend(&run->steps[k], &run->steps[i]);
        first = run->steps[i].meets ? i : first;
    }
}

/* What ggml computes by calling share(tensor, …, arg); false: no memory. */
static bool run_head_of(struct ggml_tensor *tensor, struct run *run)
{
    struct ggml_context *ctx = ggml_init(
        (struct ggml_init_params){.mem_size = 2 * ggml_tensor_overhead(), .no_alloc = true});
    if (!ctx)
        return false;
    struct ggml_tensor *source = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1);
    const struct ggml_tensor *head =
        custom_op_new(ctx, GGML_TYPE_F32, (int64_t[]){1, 1, 1}, &source, 1, run_share, run);
    const struct custom_op kept = *custom_op_of(tensor); /* of an addition zeros */
    tensor->op = head->op;
    memcpy(tensor->op_params, head->op_params, sizeof tensor->op_params);
    *custom_op_of(tensor) = kept;
    ggml_free(ctx);
    return true;
}

/* The steps follow those of the runs before. */
static void runs_add(struct custom_runs *runs, uint32_t n_steps)
{
    struct run *run = &runs->runs[runs->n_runs];
    *run = (struct run){.steps = runs->steps + runs->n_steps,
                        .n_steps = n_steps,
                        .meeting = {.spins = runs->spins}};
    if (n_steps < 2)
        return;
    run_set_meetings(run);
    if (!run_head_of(run->steps[0].out, run))
        return;
    pthread_mutex_init(&run->meeting.lock, NULL);
    pthread_cond_init(&run->meeting.wake, NULL);
    for (uint32_t i = 1; i < n_steps; i++)
        run->steps[i].out->op = GGML_OP_NONE;
    runs->n_steps += n_steps;
    runs->n_runs++;
}

static bool is_nothing_to_compute(const struct ggml_tensor *node)
{
    return node->op == GGML_OP_NONE || node->op == GGML_OP_RESHAPE || node->op == GGML_OP_VIEW ||
           node->op == GGML_OP_PERMUTE || node->op == GGML_OP_TRANSPOSE;
}

struct custom_runs *custom_runs_make(struct ggml_cgraph *graph)
{
    const size_t n_nodes = (size_t)ggml_graph_n_nodes(graph);
    struct custom_runs *runs = mem_new(sizeof *runs + n_nodes * sizeof *runs->steps);
    if (!runs || !(runs->runs = mem_new_array(n_nodes, sizeof *runs->runs))) {
        mem_free(runs);
        return NULL;
    }
    runs->spins = cpu_runtime_spins();
    uint32_t n = 0; /* steps of the run so far */
    for (size_t i = 0; i < n_nodes; i++) {
        struct ggml_tensor *node = ggml_graph_node(graph, (int)i);
        if (is_nothing_to_compute(node))
            continue;
        if (step_of(node, &runs->steps[runs->n_steps + n])) {
            n++;
            continue;
        }
        runs_add(runs, n);
        n = 0;
    }
    runs_add(runs, n);
    if (runs->n_runs)
        return runs;
    custom_runs_free(runs);
    return NULL;
}

void custom_runs_free(struct custom_runs *runs)
{
    if (!runs)
        return;
    for (uint32_t i = 0; i < runs->n_runs; i++) {
        pthread_cond_destroy(&runs->runs[i].meeting.wake);
        pthread_mutex_destroy(&runs->runs[i].meeting.lock);
    }
    mem_free(runs->runs);
    mem_free(runs);
}
