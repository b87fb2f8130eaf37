#include "fake_pipeline.h"
#include "pipeline/constrain.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/timed_wait.h"
#include "engine/batch_shape.h"
#include "engine/kv_map.h"
#include "model/model_precision.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct model {
    struct hyperparameters hyperparameters;
};

struct toy_checkpoint {
    uint32_t id, length;
    uint64_t states[FAKE_LAYERS];
};

struct stage {
    bool has_states;
    struct toy_checkpoint checkpoints[LIMIT_CHECKPOINTS];
    struct device *device;
    struct stage_options options;
    uint32_t *lengths; /* by slot */
    uint64_t *states;  /* layer x slot x position */
    uint64_t n_forwards;
    struct kv_map map; /* counted, nothing more; a driver must not ask for what is not there */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t unblocked; /* init_all() */
static struct fake_faults faults;
static struct fake_trace trace;
static int64_t fail_layer = -1;
static bool is_blocked, is_paused;
static uint32_t pause_layer, pause_at; /* 0: nowhere */
static atomic_bool caches_move, has_states;
static atomic_uint caches_away;
static atomic_uint stages_open, holds_open, n_given_back;
static atomic_bool bits_differ;
static atomic_uint n_repeats;
static atomic_uint memory_rows = UINT32_MAX, room_bytes = UINT32_MAX;

__attribute__((constructor)) static void init_all(void)
{
    timed_wait_init(&unblocked);
}

/* ---- control -------------------------------------------------------------------------- */

const struct model *fake_model(void)
{
    static struct model model = {.hyperparameters = {.n_layers = FAKE_LAYERS,
                                                     .n_embd = FAKE_EMBD,
                                                     .n_vocab = FAKE_VOCAB,
                                                     .n_context_train = 2000}};
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < FAKE_LAYERS; i++)
        model.hyperparameters.layers[i].kv_layer = i; /* each has keys and values of its own */
    model.hyperparameters.recurrent.n_head = atomic_load(&has_states);
    pthread_mutex_unlock(&lock);
    return &model;
}

const struct hyperparameters *model_hyperparameters(const struct model *model)
{
    return &model->hyperparameters;
}

struct layer_cost model_layer_cost(const struct model *model, uint32_t layer)
{
    (void)model;
    assert(layer < FAKE_LAYERS);
    return (struct layer_cost){.bytes = 1000};
}

uint64_t model_weight_bytes(const struct model *model)
{
    (void)model;
    return 1000 * FAKE_LAYERS;
}

bool model_is_smaller_at(const struct model *model, int precision, int than)
{
    (void)model;
    return precision && !than;
}

bool model_precision_is_known(int precision)
{
    return precision >= 0;
}

const char *model_precision_name(int precision)
{
    return precision ? "small" : "as stored";
}

static uint64_t fake_weights(const struct stage_options *options)
{
    const uint64_t all = (options->precision ? 250 : 1000) * (uint64_t)options->n_layers;
    assert(!options->precision || !options->weights_max); /* nothing converted is streamed */
    return options->weights_max && options->weights_max < all ? options->weights_max : all;
}

void fake_set_faults(struct fake_faults wanted)
{
    pthread_mutex_lock(&lock);
    faults = wanted;
    pthread_mutex_unlock(&lock);
}

static struct fake_faults faults_now(void)
{
    pthread_mutex_lock(&lock);
    struct fake_faults copy = faults;
    pthread_mutex_unlock(&lock);
    return copy;
}

void fake_fail_next(uint32_t layer)
{
    pthread_mutex_lock(&lock);
    fail_layer = layer;
    pthread_mutex_unlock(&lock);
}

void fake_set_repeats(uint32_t percent)
{
    atomic_store(&n_repeats, percent);
}

void fake_set_bits_differ(bool differ)
{
    atomic_store(&bits_differ, differ);
}

void fake_set_memory(uint32_t rows)
{
    atomic_store(&memory_rows, rows);
}

void fake_set_room(uint32_t bytes)
{
    atomic_store(&room_bytes, bytes);
}

static bool has_room(const struct device *device, const struct stage_options *options)
{
    const uint32_t all = 1000 * options->n_layers, caches = options->kv_type == KV_Q4_0   ? all / 4
                                                            : options->kv_type == KV_Q8_0 ? all / 2
                                                                                          : all;
    const uint64_t weights = fake_weights(options);
    return strcmp(device_info(device)->id, "cpu") == 0 ||
           weights + caches <= atomic_load(&room_bytes);
}

void fake_pause_at(uint32_t layer, uint32_t position)
{
    pthread_mutex_lock(&lock);
    pause_layer = layer;
    pause_at = position;
    is_paused = false;
    pthread_cond_broadcast(&unblocked);
    pthread_mutex_unlock(&lock);
}

bool fake_is_paused(void)
{
    pthread_mutex_lock(&lock);
    const bool is = is_paused;
    pthread_mutex_unlock(&lock);
    return is;
}

void fake_block(bool blocked)
{
    pthread_mutex_lock(&lock);
    is_blocked = blocked;
    pthread_cond_broadcast(&unblocked);
    pthread_mutex_unlock(&lock);
}

uint32_t fake_stages_open(void)
{
    return atomic_load(&stages_open);
}

struct fake_trace fake_trace(void)
{
    pthread_mutex_lock(&lock);
    struct fake_trace copy = trace;
    pthread_mutex_unlock(&lock);
    return copy;
}

void fake_trace_clear(void)
{
    pthread_mutex_lock(&lock);
    trace = (struct fake_trace){0};
    pthread_mutex_unlock(&lock);
}

/* ---- the toy model -------------------------------------------------------------------- */

static uint64_t layer_state(uint64_t before, uint64_t input, uint32_t layer)
{
    return random_mix(before * 31 + random_mix(input + layer));
}

/* A hash travels between stages as numbers that a float holds exactly. */
static void hash_to_hidden(uint64_t hash, float *hidden)
{
    for (int i = 0; i < FAKE_EMBD; i++)
        hidden[i] = (float)((hash >> (8 * i)) & 0xff) - 128;
}

static uint64_t hidden_to_hash(const float *hidden)
{
    uint64_t hash = 0;
    for (int i = 0; i < FAKE_EMBD; i++)
        hash |= (uint64_t)(hidden[i] + 128) << (8 * i);
    return hash;
}

/* Where the toy repeats itself, the next token follows from the last. */
static void hash_to_logits(uint64_t hash, int32_t token, float *logits)
{
    const uint32_t percent = atomic_load(&n_repeats);
    for (uint32_t i = 0; i < FAKE_VOCAB; i++)
        logits[i] = (float)(8 * random_unit_at(hash, i));
    if (random_at(hash, FAKE_VOCAB) % 100 < percent)
        logits[(uint32_t)token * 5 % 13] += 12;
}

static uint64_t plain_hash(const int32_t *tokens, uint32_t n)
{
    uint64_t states[FAKE_LAYERS] = {0}, hash = 0;
    for (uint32_t i = 0; i < n; i++) {
        hash = (uint64_t)tokens[i];
        for (uint32_t layer = 0; layer < FAKE_LAYERS; layer++)
            hash = states[layer] = layer_state(states[layer], hash, layer);
    }
    return hash;
}

void fake_logits(const int32_t *tokens, uint32_t n, float *logits)
{
    hash_to_logits(plain_hash(tokens, n), tokens[n - 1], logits);
}

void fake_hidden(const int32_t *tokens, uint32_t n, float *hidden)
{
    hash_to_hidden(plain_hash(tokens, n), hidden);
}

/* ---- the stage ------------------------------------------------------------------------ */

enum error_code stage_open(struct device *device, const struct model *model,
                           const struct stage_options *options, struct stage **out,
                           struct error *err)
{
    (void)model;
    assert(fake_device_current() == device);
    uint32_t bad = faults_now().open_fails_at;
    if (bad > options->first_layer && bad <= options->first_layer + options->n_layers)
        return error_set(err, ERROR_NO_MEMORY, "needs 2 GiB, 1 GiB is free");
    if (!has_room(device, options))
        return error_set(err, ERROR_NO_MEMORY, "no room for the toy");
    struct stage *stage = mem_new(sizeof *stage);
    uint32_t *lengths = mem_new_array(options->n_slots, sizeof *lengths);
    uint64_t *states = mem_new_array(
        (size_t)options->n_layers * options->n_slots * options->context, sizeof *states);
    if (!stage || !lengths || !states)
        goto no_memory;
    *stage =
        (struct stage){.device = device, .options = *options, .lengths = lengths, .states = states};
    stage->has_states = atomic_load(&has_states);
    if (options->cells &&
        kv_map_init(&stage->map, options->n_slots, options->context, options->cells, NULL))
        goto no_memory;
    atomic_fetch_add(&stages_open, 1);
    *out = stage;
    return ERROR_NONE;
no_memory:
    mem_free(stage);
    mem_free(lengths);
    mem_free(states);
    return error_set(err, ERROR_NO_MEMORY, "not enough memory for a toy");
}

void stage_close(struct stage *stage)
{
    assert(fake_device_current() == stage->device);
    mem_free(stage->lengths);
    mem_free(stage->states);
    kv_map_deinit(&stage->map);
    mem_free(stage);
    atomic_fetch_sub(&stages_open, 1);
}

struct stage_memory stage_memory(const struct stage *stage)
{
    return (struct stage_memory){.weights = fake_weights(&stage->options)};
}

static bool stage_is_first(const struct stage *stage)
{
    return stage->options.first_layer == 0;
}

bool stage_is_last(const struct stage *stage)
{
    return stage->options.first_layer + stage->options.n_layers == FAKE_LAYERS;
}

uint32_t stage_width(const struct stage *stage)
{
    (void)stage;
    return FAKE_EMBD;
}

uint32_t stage_vector_width(const struct stage *stage)
{
    (void)stage;
    return FAKE_EMBD;
}

uint32_t stage_output_width(const struct stage *stage)
{
    return stage->options.first_layer + stage->options.n_layers == FAKE_LAYERS ? FAKE_VOCAB
                                                                               : FAKE_EMBD;
}

uint32_t batch_output_count(const struct batch *batch)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < batch->n_rows; i++)
        n += batch->rows[i].output;
    return n;
}

static uint64_t *state_at(struct stage *stage, uint32_t layer, uint32_t slot, uint32_t position)
{
    return &stage->states[((size_t)layer * stage->options.n_slots + slot) * stage->options.context +
                          position];
}

/* What stage.h asks of a batch. Decode rows: alone in their slot. */
static uint32_t check_batch(struct stage *stage, const struct batch *batch, const float *in,
                            const float *out)
{
    assert(fake_device_current() == stage->device);
    assert(batch->n_rows && batch->n_rows <= stage->options.rows_max);
    assert((in == NULL) == stage_is_first(stage));
    assert(out || (stage_is_last(stage) && batch_output_count(batch) == 0));
    bool seen[256] = {false};
    uint32_t n_alone = 0;
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        const struct batch_row *row = &batch->rows[i], *before = i ? row - 1 : NULL;
        assert(row->slot < stage->options.n_slots && row->position < stage->options.context);
        if (before && before->slot == row->slot) {
            assert(row->position == before->position + 1);
        } else {
            assert(!seen[row->slot]);
            seen[row->slot] = true;
            assert(row->position == stage->lengths[row->slot] || faults_now().strangers);
            n_alone += i + 1 == batch->n_rows || row[1].slot != row->slot;
        }
        assert(!batch->embeddings || row->output);
    }
    return n_alone;
}

static void claim_cells(struct stage *stage, uint32_t slot, uint32_t end)
{
    struct kv_claim claim;
    for (uint32_t i = stage->lengths[slot] / KV_PADDING;
         stage->options.cells && i < kv_map_extents(end); i++) {
        const bool there = kv_map_claim(&stage->map, slot, i, &claim);
        assert(there || faults_now().strangers);
    }
}

static void note(const struct batch *batch, uint32_t n_alone)
{
    uint32_t n_outputs = batch_output_count(batch);
    pthread_mutex_lock(&lock);
    trace.n_batches++;
    trace.n_rows += batch->n_rows;
    trace.rows_max = batch->n_rows > trace.rows_max ? batch->n_rows : trace.rows_max;
    trace.outputs_max = n_outputs > trace.outputs_max ? n_outputs : trace.outputs_max;
    trace.decode_rows_max = n_alone > trace.decode_rows_max ? n_alone : trace.decode_rows_max;
    pthread_mutex_unlock(&lock);
}

/* Forwards wait while the toys are blocked, but for those that are wanted no more. With the lock.
 */
static void wait_blocked(const struct batch *batch)
{
    while (is_blocked && !batch_stops(batch)) {
        if (batch->stops)
            timed_wait(&unblocked, &lock, clock_now_ns() + 1000 * 1000);
        else
            pthread_cond_wait(&unblocked, &lock);
    }
}

static bool must_fail(struct stage *stage, const struct batch *batch)
{
    struct fake_faults now = faults_now();
    uint64_t draw = random_at(now.seed + stage->options.first_layer, ++stage->n_forwards);
    if (now.delay_us_max)
        usleep((useconds_t)(draw >> 32) % now.delay_us_max);
    pthread_mutex_lock(&lock);
    wait_blocked(batch);
    bool chosen = fail_layer >= (int64_t)stage->options.first_layer &&
                  fail_layer < (int64_t)(stage->options.first_layer + stage->options.n_layers);
    if (chosen)
        fail_layer = -1;
    pthread_mutex_unlock(&lock);
    return chosen || draw % 1000 < now.forward_per_mille;
}

static bool goes_on(const struct stage *stage, const struct batch *batch)
{
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        const struct batch_row *row = &batch->rows[i];
        if ((!i || row[-1].slot != row->slot) && row->position != stage->lengths[row->slot])
            return false;
    }
    return true;
}

static void pause_before(const struct stage *stage, const struct batch *batch,
                         const struct batch_row *row)
{
    const uint32_t first = stage->options.first_layer;
    pthread_mutex_lock(&lock);
    while (pause_at && pause_layer >= first && pause_layer < first + stage->options.n_layers &&
           row->position == pause_at && !batch_stops(batch)) {
        is_paused = true;
        pthread_cond_broadcast(&unblocked);
        timed_wait(&unblocked, &lock, clock_now_ns() + 1000 * 1000);
    }
    pthread_mutex_unlock(&lock);
}

/* What was computed so far is still there, beyond the slots' lengths. */
static enum error_code be_stopped(struct stage *stage, const struct batch *batch, uint32_t n_rows,
                                  struct error *err)
{
    for (uint32_t i = 0; i < n_rows; i++) {
        const struct batch_row *row = &batch->rows[i];
        if (stage->has_states)
            stage->lengths[row->slot] = 0;
        else if (!i || row[-1].slot != row->slot)
            stage->lengths[row->slot] = row->position;
    }
    pthread_mutex_lock(&lock);
    trace.n_stopped++;
    trace.n_rows_stopped += n_rows;
    pthread_mutex_unlock(&lock);
    return error_set(err, ERROR_CANCELLED, "the toy was stopped");
}

enum error_code stage_forward(struct stage *stage, const struct batch *batch, const float *in,
                              float *out, struct error *err)
{
    uint32_t n_alone = check_batch(stage, batch, in, out);
    if (batch_stops(batch))
        return be_stopped(stage, batch, 0, err);
    if (batch->n_rows > atomic_load(&memory_rows))
        return error_set(err, ERROR_NO_MEMORY, "the toy has no memory for %u rows", batch->n_rows);
    if (!has_room(stage->device, &stage->options))
        return error_set(err, ERROR_NO_MEMORY, "the toy has no room");
    if (stage_is_first(stage))
        note(batch, n_alone);
    if (must_fail(stage, batch)) {
        for (uint32_t i = 0; i < batch->n_rows && stage->has_states; i++)
            stage->lengths[batch->rows[i].slot] = 0;
        return error_set(err, ERROR_DEVICE, "the toy fell down");
    }
    if (!goes_on(stage, batch))
        return error_set(err, ERROR_INVALID, "the toy knows nothing of what is before this");
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        const struct batch_row *row = &batch->rows[i];
        pause_before(stage, batch, row);
        if (batch_stops(batch))
            return be_stopped(stage, batch, i, err);
        uint64_t hash = in ? hidden_to_hash(in + (size_t)i * FAKE_EMBD) : (uint64_t)row->token;
        for (uint32_t layer = 0; layer < stage->options.n_layers; layer++) {
            uint64_t before =
                row->position ? *state_at(stage, layer, row->slot, row->position - 1) : 0;
            hash = layer_state(before, hash, stage->options.first_layer + layer);
            *state_at(stage, layer, row->slot, row->position) = hash;
        }
        claim_cells(stage, row->slot, row->position + 1);
        stage->lengths[row->slot] = row->position + 1;
        if (stage_is_last(stage) && !row->output)
            continue;
        bool logits = stage_is_last(stage) && !batch->embeddings;
        if (logits)
            hash_to_logits(hash, row->token, out);
        else
            hash_to_hidden(hash, out);
        out += logits ? FAKE_VOCAB : FAKE_EMBD;
    }
    return ERROR_NONE;
}

bool stage_has_stable_bits(const struct stage *stage)
{
    (void)stage;
    return !atomic_load(&bits_differ);
}

bool stage_reads_whole(const struct stage *stage)
{
    (void)stage;
    return false;
}

uint32_t stage_given_width(const struct stage *stage)
{
    (void)stage;
    return 0;
}

uint32_t stage_kv_length(const struct stage *stage, uint32_t slot)
{
    return stage->lengths[slot];
}

void stage_kv_truncate(struct stage *stage, uint32_t slot, uint32_t length)
{
    assert(fake_device_current() == stage->device && slot < stage->options.n_slots);
    if (length < stage->lengths[slot])
        stage->lengths[slot] = stage->has_states ? 0 : length;
    if (stage->options.cells)
        kv_map_cut(&stage->map, slot, stage->lengths[slot]);
}

uint64_t stage_kv_give_back(struct stage *stage)
{
    assert(fake_device_current() == stage->device);
    atomic_fetch_add(&n_given_back, 1);
    return 0;
}

void fake_set_caches(bool move, uint32_t n_away)
{
    atomic_store(&caches_move, move);
    atomic_store(&caches_away, n_away);
}

uint32_t fake_caches_away(void)
{
    return atomic_load(&caches_away);
}

bool stage_kv_is_away(const struct stage *stage, uint32_t slot)
{
    uint32_t n = atomic_load(&caches_away);
    while (stage->lengths[slot] && n && !atomic_compare_exchange_weak(&caches_away, &n, n - 1))
        continue;
    return stage->lengths[slot] && n;
}

bool stage_kv_moves(const struct stage *stage)
{
    return atomic_load(&caches_move) && stage->options.cells;
}

bool stage_kv_take_back(struct stage *stage)
{
    assert(fake_device_current() == stage->device);
    return true;
}

uint64_t stage_kv_bytes_away(const struct stage *stage)
{
    (void)stage;
    return 0;
}

static enum error_code toy_copy(struct stage *stage, uint32_t from, uint32_t to, uint32_t length,
                                struct error *err)
{
    assert(fake_device_current() == stage->device && from < stage->options.n_slots &&
           to < stage->options.n_slots);
    struct fake_faults now = faults_now();
    if (now.strangers && length > stage->lengths[from])
        return error_set(err, ERROR_INVALID, "the toy has nothing to copy");
    assert(from != to && length <= stage->lengths[from] && stage->lengths[to] == 0);
    uint64_t draw = random_at(now.seed + 77 + stage->options.first_layer, ++stage->n_forwards);
    if (draw % 1000 < now.copy_per_mille)
        return error_set(err, ERROR_DEVICE, "the toy cannot copy now");
    for (uint32_t layer = 0; layer < stage->options.n_layers; layer++)
        memcpy(state_at(stage, layer, to, 0), state_at(stage, layer, from, 0),
               length * sizeof(uint64_t));
    if (stage->options.cells) {
        kv_map_share(&stage->map, from, to, length);
        stage->lengths[to] = length / KV_PADDING * KV_PADDING;
        claim_cells(stage, to, length);
    }
    stage->lengths[to] = length;
    pthread_mutex_lock(&lock);
    trace.copies += stage_is_first(stage);
    pthread_mutex_unlock(&lock);
    return ERROR_NONE;
}

enum error_code stage_kv_copy(struct stage *stage, uint32_t from, uint32_t to, uint32_t length,
                              struct error *err)
{
    if (stage->has_states && length != stage->lengths[from])
        return error_set(err, ERROR_INVALID, "the toy's state is of another length");
    return toy_copy(stage, from, to, length, err);
}

/* ---- states that are kept ------------------------------------------------------------- */

void fake_set_states(bool has)
{
    atomic_store(&has_states, has);
}

void stage_checkpoint_keep(struct stage *stage, uint32_t slot,
                           const struct stage_checkpoint *checkpoint)
{
    assert(fake_device_current() == stage->device && slot < stage->options.n_slots);
    assert(checkpoint->index < stage->options.checkpoints && checkpoint->id && checkpoint->length);
    assert(stage->has_states);
    struct toy_checkpoint *kept = &stage->checkpoints[checkpoint->index];
    *kept = (struct toy_checkpoint){0};
    if (stage->lengths[slot] != checkpoint->length)
        return;
    kept->id = checkpoint->id;
    kept->length = checkpoint->length;
    for (uint32_t layer = 0; layer < stage->options.n_layers; layer++)
        kept->states[layer] = *state_at(stage, layer, slot, kept->length - 1);
}

enum error_code stage_checkpoint_take(struct stage *stage, uint32_t from, uint32_t to,
                                      const struct stage_checkpoint *checkpoint, struct error *err)
{
    const struct toy_checkpoint *kept = &stage->checkpoints[checkpoint->index];
    const uint32_t length = checkpoint->length;
    assert(fake_device_current() == stage->device && checkpoint->id && length);
    if (kept->id != checkpoint->id || kept->length != length || length > stage->lengths[from])
        return error_set(err, ERROR_NOT_FOUND, "the toy has not kept that");
    const enum error_code code = from == to ? ERROR_NONE : toy_copy(stage, from, to, length, err);
    if (code)
        return code;
    stage->lengths[to] = length;
    if (stage->options.cells && from == to)
        kv_map_cut(&stage->map, to, length);
    for (uint32_t layer = 0; layer < stage->options.n_layers; layer++)
        *state_at(stage, layer, to, length - 1) = kept->states[layer];
    pthread_mutex_lock(&lock);
    trace.takes += stage_is_first(stage);
    pthread_mutex_unlock(&lock);
    return ERROR_NONE;
}

uint64_t stage_checkpoints_drop(struct stage *stage)
{
    assert(fake_device_current() == stage->device);
    memset(stage->checkpoints, 0, sizeof stage->checkpoints);
    return 0;
}

struct stage_pin *stage_pin(const struct stage *stage, uint32_t first_layer, uint32_t n_layers)
{
    assert(first_layer >= stage->options.first_layer && n_layers &&
           first_layer + n_layers <= stage->options.first_layer + stage->options.n_layers);
    void *pin = mem_new(1);
    if (pin)
        atomic_fetch_add(&holds_open, 1);
    return pin;
}

void stage_unpin(struct stage_pin *pin)
{
    if (pin)
        atomic_fetch_sub(&holds_open, 1);
    mem_free(pin);
}

uint32_t fake_given_back(void)
{
    return atomic_load(&n_given_back);
}

uint32_t fake_pins_open(void)
{
    return atomic_load(&holds_open);
}

uint64_t stage_kv_row_bytes(const struct stage *stage)
{
    (void)stage;
    return sizeof(uint64_t);
}

static enum error_code check_run(const struct stage *stage, const struct kv_run *run,
                                 uint32_t length, struct error *err)
{
    const struct stage_options *o = &stage->options;
    if (run->layer < o->first_layer || run->layer - o->first_layer >= o->n_layers ||
        run->slot >= o->n_slots || run->first > length || run->n_rows > length - run->first)
        return error_set(err, ERROR_INVALID, "the toy has no such rows");
    return ERROR_NONE;
}

enum error_code stage_kv_read(const struct stage *stage, const struct kv_run *run, void *out,
                              struct error *err)
{
    assert(fake_device_current() == stage->device);
    struct stage *from = (struct stage *)(uintptr_t)stage;
    enum error_code code = check_run(
        stage, run, run->slot < stage->options.n_slots ? stage->lengths[run->slot] : 0, err);
    if (!code && faults_now().read_fails)
        code = error_set(err, ERROR_DEVICE, "the toy cannot remember");
    if (!code)
        memcpy(out, state_at(from, run->layer - stage->options.first_layer, run->slot, run->first),
               run->n_rows * sizeof(uint64_t));
    return code;
}

enum error_code stage_kv_write(struct stage *stage, const struct kv_run *run, const void *in,
                               struct error *err)
{
    assert(fake_device_current() == stage->device);
    enum error_code code = check_run(stage, run, stage->options.context, err);
    if (!code)
        memcpy(state_at(stage, run->layer - stage->options.first_layer, run->slot, run->first), in,
               run->n_rows * sizeof(uint64_t));
    return code;
}

enum error_code stage_kv_set_length(struct stage *stage, uint32_t slot, uint32_t length,
                                    struct error *err)
{
    (void)err;
    assert(fake_device_current() == stage->device && slot < stage->options.n_slots);
    claim_cells(stage, slot, length);
    stage->lengths[slot] = length;
    return ERROR_NONE;
}

const struct gguf_file *model_file(const struct model *model)
{
    (void)model;
    return NULL;
}

const char *model_name(const struct model *model)
{
    (void)model;
    return "fake";
}

const struct model *model_origin(const struct model *model)
{
    return model;
}

/* A toy model rotates nothing. */
enum error_code model_stretch_copy(const struct model *model, const struct rope_stretch *stretch,
                                   struct model **out, struct error *err)
{
    (void)model, (void)stretch;
    *out = NULL;
    return error_set(err, ERROR_UNSUPPORTED, "a toy model rotates nothing");
}

void model_close(struct model *model)
{
    assert(!model);
}

/* Tokens of a toy model are one byte each, from the blank on; the first ends an answer. */
enum error_code constrain_open_vocabulary(struct constrain *constrain, const struct model *model,
                                          struct error *err)
{
    char bytes[FAKE_VOCAB];
    uint64_t starts[FAKE_VOCAB + 1];
    const int32_t end = 0;
    struct grammar_vocabulary *vocabulary = NULL;
    (void)model;
    if (constrain_has_vocabulary(constrain))
        return ERROR_NONE;
    for (uint32_t i = 0; i <= FAKE_VOCAB; i++)
        starts[i] = i;
    for (uint32_t i = 0; i < FAKE_VOCAB; i++)
        bytes[i] = (char)(' ' + i % 95);
    const enum error_code code =
        grammar_vocabulary_new(bytes, starts, FAKE_VOCAB, &end, 1, &vocabulary, err);
    if (!code)
        constrain_give_vocabulary(constrain, vocabulary);
    return code;
}
