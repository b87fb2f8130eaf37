#include "engine/stage.h"

#include "base/clock.h"
#include "base/large_pages.h"
#include "base/mem.h"
#include "engine/kv_away.h"
#include "engine/stage_inputs.h"
#include "engine/stage_state.h"
#include "engine/weight_unit.h"
#include "gpu/custom_runs.h"
#include "gpu/device_ggml.h"
#include "model/picture.h"

#include <sys/resource.h>

/* Activations of a prompt are tens of megabytes, whose rows lie pages apart. Views are left out:
 * what they look at is weights and caches, not the scheduler's. */
static void stage_ask_large_pages(struct stage *stage)
{
    struct ggml_cgraph *graph = stage->graph.cgraph;
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(graph, i);
        if (node->view_src || !node->buffer || !ggml_backend_buffer_is_host(node->buffer))
            continue;
        const void *bytes = ggml_backend_buffer_get_base(node->buffer);
        if (bytes != stage->in_large_pages)
            large_pages_advise(bytes, ggml_backend_buffer_get_size(node->buffer));
        stage->in_large_pages = bytes;
    }
}

/* Everything stands behind each other in one split, as the CPU computes it. What is streamed is
 * taken and given back between layers. */
static void stage_make_runs(struct stage *stage)
{
    const bool is_alone =
        weights_on_host(stage->device) && ggml_backend_sched_get_n_splits(stage->sched) == 1;
    if (is_alone && !stage->weights.stream && stage->graph.shape.n_rows <= THREAD_FEW_ROWS)
        stage->graph.runs = custom_runs_make(stage->graph.cgraph);
}

/* Makes stage->graph the graph for `shape`. */
static enum error_code prepare_graph(struct stage *stage, const struct batch_shape *shape,
                                     struct error *err)
{
    if (kv_away_take_moved(&stage->kv))
        graph_deinit(&stage->graph);
    if (stage->graph.cgraph && batch_shape_equal(&stage->graph.shape, shape))
        return ERROR_NONE;
    graph_deinit(&stage->graph);
    ggml_backend_sched_reset(stage->sched);
    enum error_code code = graph_build(&stage->graph, &stage->source, shape, err);
    if (!code)
        stage_assign(stage, stage->graph.cgraph);
    if (!code && !ggml_backend_sched_alloc_graph(stage->sched, stage->graph.cgraph))
        code = error_set(err, ERROR_NO_MEMORY, "%s: not enough memory for a batch of %u rows",
                         device_info(stage->device)->id, shape->n_rows);
    if (code) {
        graph_deinit(&stage->graph);
        return code;
    }
    stage_ask_large_pages(stage);
    stage_make_runs(stage);
    return ERROR_NONE;
}

/* Lets a simulated device take its time, or fail. */
static enum error_code tell_work(const struct stage *stage, const struct batch *batch,
                                 uint64_t start_ns, float *out, struct error *err)
{
    struct device_work work;
    stage_work_count(&stage->cost, batch, &work);
    work.stops = batch->stops;
    work.arg = batch->stops_arg;
    if (stage->graph.result && out) {
        work.out = out;
        work.n_out = ggml_nbytes(stage->graph.result) / sizeof *out;
        work.bytes_copied += ggml_nbytes(stage->graph.result);
    }
    work.elapsed_ns = clock_now_ns() - start_ns;
    return device_worked(stage->device, &work, err);
}

/* A slot that was cut off further back than windowed layers have rows for cannot go on. */
static enum error_code check_windows(const struct stage *stage, const struct batch *batch,
                                     struct error *err)
{
    const struct kv_cache *kv = &stage->kv;
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        const uint32_t slot = batch->rows[i].slot;
        if (!kv_cache_can_go_on(kv, slot))
            return error_set(err, ERROR_INVALID,
                             "slot %u cannot go on at token %u: its windowed layers begin at %u",
                             slot, kv->lengths[slot], kv->starts[slot]);
    }
    return ERROR_NONE;
}

/* Where tokens see those behind them, too, a text is one run of rows from its beginning. */
static enum error_code check_whole(const struct stage *stage, const struct batch *batch,
                                   struct error *err)
{
    for (uint32_t i = 0; stage->h->reads_whole && i < batch->n_rows; i++) {
        const uint32_t slot = batch->rows[i].slot;
        if (stage->kv.lengths[slot])
            return error_set(err, ERROR_INVALID,
                             "slot %u cannot go on: this model reads a text at once", slot);
    }
    return ERROR_NONE;
}

/* On failure of one, those before keep what they were given: it is theirs when they go on. */
static enum error_code claim_cells(struct stage *stage, const struct batch *batch,
                                   struct error *err)
{
    struct kv_cache *kv = &stage->kv;
    enum error_code code = ERROR_NONE;
    kv_away_begin(kv);
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        if (!i || batch->rows[i].slot != batch->rows[i - 1].slot)
            kv_away_pin(kv, batch->rows[i].slot, 0, UINT32_MAX);
    }
    for (uint32_t i = 0, n; i < batch->n_rows && !code; i += n) {
        const struct batch_row *row = &batch->rows[i];
        for (n = 1; i + n < batch->n_rows && row[n].slot == row->slot;)
            n++;
        code = kv_cache_claim(kv, row->slot, row->position, row->position + n, err);
    }
    for (uint32_t i = 0; i < batch->n_rows && !code; i++) { /* one may have moved the others */
        if (!i || batch->rows[i].slot != batch->rows[i - 1].slot)
            code = kv_away_fetch(kv, batch->rows[i].slot, err);
    }
    return code;
}

/* What a slot held before is another sequence's. */
static void clear_new_states(struct stage *stage, const struct batch *batch)
{
    for (uint32_t i = 0; stage->state.n_recurrent && i < batch->n_rows; i++) {
        if (batch->rows[i].position == 0)
            recurrent_state_clear(&stage->state, batch->rows[i].slot);
    }
}

enum error_code stage_refuse_stopped(const struct stage *stage, const struct batch *batch,
                                     struct error *err)
{
    return error_set(err, ERROR_CANCELLED, "%s: a batch of %u rows was cancelled",
                     device_info(stage->device)->id, batch->n_rows);
}

static bool stage_asks_batch(void *stage)
{
    return batch_stops(((const struct stage *)stage)->batch);
}

/* How often the system gave a processor of this process's threads to somebody else. */
static uint64_t stage_count_preempted(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_nivcsw : 0;
}

static enum ggml_status stage_compute_with_threads(struct stage *stage)
{
    const uint32_t n_rows = stage->batch->n_rows, cores = device_cores(stage->device);
    const uint32_t most = device_threads(stage->device);
    const bool is_few = n_rows <= THREAD_FEW_ROWS;
    struct thread_choice *choice = is_few ? &stage->few_threads : &stage->many_threads;
    if (cores != choice->cores || most != choice->most)
        thread_choice_init(choice, is_few ? 1 : cores, cores, most, is_few ? THREAD_WINDOW : 1);
    const uint32_t n_threads = thread_choice_next(choice);
    if (n_threads != cores)
        device_compute_with(stage->device, n_threads);
    const uint64_t start_ns = clock_now_ns(), used_ns = clock_process_ns(),
                   preempted = stage_count_preempted();
    const enum ggml_status status =
        ggml_backend_sched_graph_compute(stage->sched, stage->graph.cgraph);
    struct thread_took took = {.ns = clock_now_ns() - start_ns};
    const uint64_t wanted_ns = took.ns * n_threads, had_ns = clock_process_ns() - used_ns;
    took.preempted = stage_count_preempted() - preempted;
    took.lost_ns = wanted_ns > had_ns ? wanted_ns - had_ns : 0;
    if (status == GGML_STATUS_SUCCESS) /* one that was stopped says nothing */
        thread_choice_took(choice, n_rows, &took);
    if (n_threads != cores)
        device_compute_with(stage->device, 0);
    return status;
}

/* One that is stopped keeps its graph, which the next batch computes from its beginning. */
static enum ggml_status stage_compute_graph(struct stage *stage)
{
    if (stage->batch->stops)
        device_ggml_ask(stage->device, stage_asks_batch, stage);
    const enum ggml_status status = stage_compute_with_threads(stage);
    if (stage->batch->stops)
        device_ggml_ask(stage->device, NULL, NULL);
    return status;
}

static enum error_code stage_run_graph(struct stage *stage, const struct batch *batch, float *out,
                                       struct error *err)
{
    stage->batch = batch;
    enum error_code code = stage_stream_begin(stage, err);
    if (code)
        return code;
    const enum ggml_status status = stage_compute_graph(stage);
    code = stage_stream_end(stage, status == GGML_STATUS_SUCCESS, err);
    if (code)
        return code;
    if (status == GGML_STATUS_ABORTED)
        return stage_refuse_stopped(stage, batch, err);
    if (status != GGML_STATUS_SUCCESS)
        return error_set(err, status == GGML_STATUS_ALLOC_FAILED ? ERROR_NO_MEMORY : ERROR_DEVICE,
                         "%s: computing a batch of %u rows failed (%s)",
                         device_info(stage->device)->id, batch->n_rows,
                         ggml_status_to_string(status));
    code = gguf_file_check_whole(model_file(stage->model), err);
    if (!code && stage->graph.result && out)
        ggml_backend_tensor_get(stage->graph.result, out, 0, ggml_nbytes(stage->graph.result));
    return code;
}

/* Tokens of the vocabulary, or rows that are given. */
static enum error_code check_tokens(const struct stage *stage, const struct batch *batch,
                                    struct error *err)
{
    for (uint32_t i = 0; stage->source.first && i < batch->n_rows; i++) {
        const int32_t token = batch->rows[i].token;
        if (token >= PICTURE_TOKEN_FIRST && batch->given && stage_takes_given(stage))
            continue;
        if (token < 0 || (uint32_t)token >= stage->h->n_vocab)
            return error_set(err, ERROR_INVALID, "row %u: token %d; the vocabulary has %u", i,
                             token, stage->h->n_vocab);
    }
    return ERROR_NONE;
}

enum error_code stage_forward(struct stage *stage, const struct batch *batch, const float *in,
                              float *out, struct error *err)
{
    struct batch_shape shape;
    if (batch_stops(batch))
        return stage_refuse_stopped(stage, batch, err);
    enum error_code code = batch_shape_read(batch, &stage->options, stage->kv.lengths, &shape, err);
    if (!code)
        code = check_tokens(stage, batch, err);
    if (!code)
        code = batch_shape_read_places(batch, &shape, err);
    if (!code && batch->given && stage_takes_given(stage))
        shape.n_given = batch_given_count(batch);
    if (!code)
        code = check_windows(stage, batch, err);
    if (!code)
        code = check_whole(stage, batch, err);
    if (!code)
        code = claim_cells(stage, batch, err);
    if (!code && stage_gathers(stage))
        batch_shape_lay_out(&shape, kv_away_map(&stage->kv), stage->kv.map.n_extents);
    if (!code)
        code = prepare_graph(stage, &shape, err);
    if (code)
        return code;
    for (uint32_t i = 0; i < batch->n_rows; i++)
        kv_cache_advance(&stage->kv, batch->rows[i].slot, batch->rows[i].position + 1);
    bool told = device_wants_work(stage->device);
    uint64_t start_ns = told ? clock_now_ns() : 0;
    clear_new_states(stage, batch);
    stage_inputs_set(&stage->graph, batch, stage->h, &stage->kv, in);
    code = stage_run_graph(stage, batch, out, err);
    if (!code && told)
        code = tell_work(stage, batch, start_ns, out, err);
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        uint32_t *length = &stage->kv.lengths[batch->rows[i].slot];
        if (!code)
            ++*length;
        else if (stage->state.n_recurrent) /* how far its state came is not known */
            *length = 0;
    }
    return code;
}

/* ---- KV cache ---- */

uint32_t stage_kv_length(const struct stage *stage, uint32_t slot)
{
    return stage->kv.lengths[slot];
}

void stage_kv_truncate(struct stage *stage, uint32_t slot, uint32_t length)
{
    if (length < stage->kv.lengths[slot])
        stage->kv.lengths[slot] = stage->state.n_recurrent ? 0 : length;
    if (!stage->kv.lengths[slot])
        kv_cache_advance(&stage->kv, slot, 0);
    kv_cache_cut(&stage->kv, slot);
}

bool stage_kv_moves(const struct stage *stage)
{
    return stage->kv.away;
}

uint64_t stage_kv_give_back(struct stage *stage)
{
    return stage->kv.away ? kv_away_shrink(&stage->kv) : kv_cache_give_back(&stage->kv);
}

/* As much again beside it: the memory is not taken from the next who needs some. */
bool stage_kv_take_back(struct stage *stage)
{
    const uint64_t all = kv_cache_pool_bytes(&stage->kv), here = kv_away_pool_bytes(&stage->kv);
    const struct kv_away *away = stage->kv.away;
    if (!away || here == all)
        return true;
    if (away->tried && away->batch - away->tried < KV_AWAY_RESTED)
        return false;
    const struct device_memory memory = device_memory(stage->device);
    return memory.free_bytes >= 2 * (all - here) && kv_away_grow(&stage->kv);
}

bool stage_kv_is_away(const struct stage *stage, uint32_t slot)
{
    const struct kv_map *map = &stage->kv.map;
    for (uint32_t i = 0; stage->kv.away && i < map->n_held[slot]; i++) {
        if (stage->kv.away->bytes[map->extents[(size_t)slot * map->n_each + i]])
            return true;
    }
    return false;
}

uint64_t stage_kv_bytes_away(const struct stage *stage)
{
    return stage->kv.away ? stage->kv.away->bytes_away : 0;
}

enum error_code stage_kv_copy(struct stage *stage, uint32_t from, uint32_t to, uint32_t length,
                              struct error *err)
{
    if (from >= stage->kv.n_slots || to >= stage->kv.n_slots || length > stage->kv.lengths[from])
        return error_set(err, ERROR_INVALID, "cannot copy %u tokens of slot %u to slot %u", length,
                         from, to);
    if (stage->state.n_recurrent && length != stage->kv.lengths[from])
        return error_set(err, ERROR_INVALID,
                         "slot %u: its state is of %u tokens, and cannot be copied as of %u", from,
                         stage->kv.lengths[from], length);
    kv_away_begin(&stage->kv);
    enum error_code code =
        from == to ? ERROR_NONE : kv_cache_copy(&stage->kv, from, to, length, err);
    if (!code && from != to)
        code = recurrent_state_copy(&stage->state, from, to, err);
    if (!code)
        stage->kv.lengths[to] = length;
    return code;
}

uint64_t stage_kv_row_bytes(const struct stage *stage)
{
    return stage->kv.row_bytes;
}

static bool stage_run_is_state(const struct stage *stage, const struct kv_run *run)
{
    return stage->h->layers[run->layer].is_recurrent;
}

static uint32_t stage_state_rows(const struct stage *stage, const struct kv_run *run)
{
    const uint64_t bytes =
        recurrent_state_layer_bytes(&stage->state, run->layer - stage->options.first_layer);
    return (uint32_t)kv_state_rows(bytes, stage_kv_row_bytes(stage));
}

static enum error_code check_run(const struct stage *stage, const struct kv_run *run,
                                 uint32_t length, struct error *err)
{
    const struct stage_options *options = &stage->options;
    if (run->layer < options->first_layer ||
        run->layer - options->first_layer >= options->n_layers || run->slot >= options->n_slots ||
        (stage_run_is_state(stage, run) && !run->n_rows))
        return error_set(err, ERROR_INVALID, "layer %u, slot %u is not here", run->layer,
                         run->slot);
    if (stage_run_is_state(stage, run))
        length = stage_state_rows(stage, run);
    if (run->first > length || run->n_rows > length - run->first)
        return error_set(err, ERROR_INVALID, "layer %u, slot %u has no cells %u to %u", run->layer,
                         run->slot, run->first, run->first + run->n_rows);
    return ERROR_NONE;
}

/* One that failed is of no length that anybody knows. */
static enum error_code stage_read_state(const struct stage *stage, const struct kv_run *run,
                                        void *out, struct error *err)
{
    const uint64_t row = stage_kv_row_bytes(stage);
    const uint32_t n_tokens = stage->kv.lengths[run->slot];
    if (!n_tokens)
        return error_set(err, ERROR_INVALID, "slot %u has no state", run->slot);
    recurrent_state_pack(&stage->state, run->layer - stage->options.first_layer, run->slot,
                         n_tokens, run->first * row, run->n_rows * row, out);
    return ERROR_NONE;
}

enum error_code stage_kv_read(const struct stage *stage, const struct kv_run *run, void *out,
                              struct error *err)
{
    const uint32_t length = run->slot < stage->options.n_slots ? stage->kv.lengths[run->slot] : 0;
    enum error_code code = check_run(stage, run, length, err);
    if (code)
        return code;
    const uint32_t layer = run->layer - stage->options.first_layer;
    if (stage_run_is_state(stage, run))
        return stage_read_state(stage, run, out, err);
    const uint32_t start = kv_cache_layer_start(&stage->kv, layer, run->slot);
    if (run->first < start)
        return error_set(err, ERROR_INVALID, "layer %u, slot %u has cells from %u on, not from %u",
                         run->layer, run->slot, start, run->first);
    kv_cache_read(&stage->kv, layer, run, out);
    return ERROR_NONE;
}

enum error_code stage_kv_write(struct stage *stage, const struct kv_run *run, const void *in,
                               struct error *err)
{
    const uint64_t row = stage_kv_row_bytes(stage);
    enum error_code code = check_run(stage, run, stage->options.context, err);
    if (!code && stage_run_is_state(stage, run))
        return recurrent_state_unpack(&stage->state, run->layer - stage->options.first_layer,
                                      run->slot, run->first * row, run->n_rows * row, in, err);
    kv_away_begin(&stage->kv);
    if (!code)
        code = kv_cache_claim(&stage->kv, run->slot, run->first, run->first + run->n_rows, err);
    if (!code)
        kv_cache_write(&stage->kv, run->layer - stage->options.first_layer, run, in);
    return code;
}

/* Windowed layers may have been given no more than what is needed. */
static void stage_kv_settle(struct stage *stage, uint32_t slot, uint32_t length)
{
    struct kv_cache *kv = &stage->kv;
    kv->lengths[slot] = length;
    kv->starts[slot] = kv_window_start(kv->window, length);
}

enum error_code stage_kv_set_length(struct stage *stage, uint32_t slot, uint32_t length,
                                    struct error *err)
{
    if (slot >= stage->options.n_slots || length > stage->options.context)
        return error_set(err, ERROR_INVALID, "slot %u cannot have %u tokens", slot, length);
    const enum error_code code = recurrent_state_settle(&stage->state, slot, length, err);
    if (!code)
        stage_kv_settle(stage, slot, length);
    return code;
}

/* ---- weights that stay ---- */

struct stage_pin {
    uint32_t n;
    struct weight_unit *units[];
};

static bool is_pinned(const struct weight_unit *unit, uint32_t first_layer, uint32_t n_layers,
                      uint32_t n_all)
{
    if (unit->layer < LIMIT_LAYERS)
        return unit->layer >= first_layer && unit->layer - first_layer < n_layers;
    return unit->layer == WEIGHT_UNIT_ROPE ||
           (unit->layer == WEIGHT_UNIT_FIRST && first_layer == 0) ||
           (unit->layer == WEIGHT_UNIT_LAST && first_layer + n_layers == n_all);
}

struct stage_pin *stage_pin(const struct stage *stage, uint32_t first_layer, uint32_t n_layers)
{
    const struct stage_weights *weights = &stage->weights;
    struct stage_pin *pin = mem_new(sizeof *pin + weights->n_units * sizeof *pin->units);
    for (uint32_t i = 0; pin && i < weights->n_units; i++) {
        if (!weights->units[i]->is_streamed &&
            is_pinned(weights->units[i], first_layer, n_layers, stage->h->n_layers))
            pin->units[pin->n++] = weight_unit_again(weights->units[i]);
    }
    return pin;
}

void stage_unpin(struct stage_pin *pin)
{
    for (uint32_t i = 0; pin && i < pin->n; i++)
        weight_unit_drop(pin->units[i]);
    mem_free(pin);
}

/* ---- facts ---- */

struct stage_memory stage_memory(const struct stage *stage)
{
    return stage->memory;
}

bool stage_is_last(const struct stage *stage)
{
    return stage->source.last;
}

bool stage_has_stable_bits(const struct stage *stage)
{
    return stage->has_stable_bits;
}

bool stage_reads_whole(const struct stage *stage)
{
    return stage->h->reads_whole;
}

bool stage_takes_given(const struct stage *stage)
{
    return stage->h->given_width && stage->options.first_layer < stage->h->given_layers;
}

uint32_t stage_given_width(const struct stage *stage)
{
    return stage_takes_given(stage) ? stage->h->given_width : 0;
}

uint32_t stage_width(const struct stage *stage)
{
    return stage->h->n_embd + stage->h->n_carried;
}

uint32_t stage_vector_width(const struct stage *stage)
{
    return stage->h->n_embd;
}

uint32_t stage_output_width(const struct stage *stage)
{
    if (!stage->source.last)
        return stage_width(stage);
    return stage->h->gives_no_logits ? stage->h->n_embd : stage->h->n_vocab;
}
