#include "fake_children.h"

#include "pipeline/runner.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct children {
    struct gpu *gpu;
    pthread_mutex_t lock;
    struct lane *lanes;
};

struct lane {
    struct lane *next;
    struct children *children;
    struct device *device;
    struct lane_options options;
    struct driver_options driver_options;
    struct child_stage stages[LIMIT_STAGES];
    enum activation_type types[LIMIT_STAGES];
    struct far far;
    struct runner *runner;
    pthread_mutex_t lock; /* one message at a time; and: */
    bool is_up, is_lost;
    uint32_t memory_step;
    struct buffer message;
};

struct lane_pin {
    uint32_t n;
    struct stage_pin *stages[CHILD_RANGES_MAX];
};

struct children *fake_children_new(struct gpu *gpu)
{
    struct children *children = calloc(1, sizeof *children);
    assert(children);
    children->gpu = gpu;
    pthread_mutex_init(&children->lock, NULL);
    return children;
}

/* ---- messages ---------------------------------------------------------------------------- */

static bool is_up(struct lane *lane)
{
    pthread_mutex_lock(&lane->lock);
    const bool up = lane->is_up;
    pthread_mutex_unlock(&lane->lock);
    return up;
}

static void lane_receive(struct lane *lane, struct buffer *own)
{
    struct microbatch_message message;
    const enum error_code code = wire_read_message(own->data, own->size, &message, NULL);
    assert(!code);
    (void)code;
    message.own = own;
    lane->options.receive(lane->options.arg, &message, NULL);
}

/* On the device's thread. */
static void to_node(void *arg, uint32_t stage, struct buffer *message)
{
    struct lane *lane = arg;
    if (is_up(lane))
        lane_receive(lane, message);
}

enum error_code lane_send(struct lane *lane, const void *bytes, size_t size)
{
    bool is_lost = false;
    pthread_mutex_lock(&lane->lock);
    const bool up = lane->is_up;
    if (up) {
        buffer_clear(&lane->message);
        buffer_append(&lane->message, bytes, size);
        is_lost = runner_receive(lane->runner, lane->message.data, size, NULL) != ERROR_NONE;
        lane->is_lost |= is_lost;
    }
    pthread_mutex_unlock(&lane->lock);
    if (is_lost)
        lane->options.changed(lane->options.changed_arg);
    return up ? ERROR_NONE : ERROR_BUSY;
}

void lane_halt(struct lane *lane, uint64_t number)
{
    pthread_mutex_lock(&lane->lock);
    if (lane->is_up)
        runner_halt(lane->runner, number);
    pthread_mutex_unlock(&lane->lock);
}

/* ---- opening and closing ----------------------------------------------------------------- */

static enum error_code start(struct lane *lane, struct error *err)
{
    struct stage_plan plan[LIMIT_STAGES] = {0};
    for (uint32_t i = 0; i < lane->options.n_stages; i++)
        plan[i] = (struct stage_plan){lane->stages[i].here ? lane->device : NULL,
                                      lane->stages[i].n_layers};
    const enum error_code code = runner_open(lane->options.model, plan, lane->options.n_stages,
                                             &lane->driver_options, &lane->far, &lane->runner, err);
    pthread_mutex_lock(&lane->lock);
    lane->is_up = !code;
    pthread_mutex_unlock(&lane->lock);
    return code;
}

enum error_code lane_open(struct children *children, const struct lane_options *options,
                          struct lane **out, struct error *err)
{
    struct lane *lane = calloc(1, sizeof *lane);
    assert(lane);
    lane->children = children;
    lane->device = gpu_find(children->gpu, options->device);
    lane->options = *options;
    lane->driver_options = *options->options;
    memcpy(lane->stages, options->stages, options->n_stages * sizeof *options->stages);
    for (uint32_t i = 0; i < options->n_stages; i++)
        lane->types[i] = options->stages[i].type;
    lane->far = (struct far){.instance = options->instance,
                             .epoch = options->epoch,
                             .type = options->type,
                             .types = lane->types,
                             .send = to_node,
                             .arg = lane};
    pthread_mutex_init(&lane->lock, NULL);
    const enum error_code code = start(lane, err);
    if (code) {
        free(lane);
        return code;
    }
    pthread_mutex_lock(&children->lock);
    lane->next = children->lanes;
    children->lanes = lane;
    pthread_mutex_unlock(&children->lock);
    *out = lane;
    return ERROR_NONE;
}

void lane_disconnect(struct lane *lane)
{
    pthread_mutex_lock(&lane->lock);
    lane->is_up = false;
    pthread_mutex_unlock(&lane->lock);
    runner_close(lane->runner); /* its device's thread is in `receive` no more */
    lane->runner = NULL;
}

void lane_close(struct lane *lane)
{
    if (!lane)
        return;
    struct lane **at = &lane->children->lanes;
    pthread_mutex_lock(&lane->children->lock);
    while (*at != lane)
        at = &(*at)->next;
    *at = lane->next;
    pthread_mutex_unlock(&lane->children->lock);
    lane_disconnect(lane);
    buffer_deinit(&lane->message);
    free(lane);
}

static void kill_lane(struct lane *lane)
{
    pthread_mutex_lock(&lane->lock);
    lane->is_up = false;
    lane->is_lost = true;
    pthread_mutex_unlock(&lane->lock);
    runner_close(lane->runner);
    lane->runner = NULL;
    lane->options.changed(lane->options.changed_arg);
}

static void start_lane(struct lane *lane)
{
    struct error err = {0};
    const enum error_code code = start(lane, &err);
    assert(!code);
    (void)code;
    runner_forget(lane->runner);
    lane->options.changed(lane->options.changed_arg);
}

static void each(struct children *children, const char *device, void (*does)(struct lane *lane))
{
    pthread_mutex_lock(&children->lock);
    for (struct lane *lane = children->lanes; lane; lane = lane->next) {
        if (lane->device == gpu_find(children->gpu, device))
            does(lane);
    }
    pthread_mutex_unlock(&children->lock);
}

void fake_children_kill(struct children *children, const char *device)
{
    each(children, device, kill_lane);
}

void fake_children_start(struct children *children, const char *device)
{
    each(children, device, start_lane);
}

void fake_children_step(struct children *children, const char *device, uint32_t step)
{
    pthread_mutex_lock(&children->lock);
    for (struct lane *lane = children->lanes; lane; lane = lane->next) {
        if (lane->device != gpu_find(children->gpu, device))
            continue;
        pthread_mutex_lock(&lane->lock);
        lane->memory_step = step;
        pthread_mutex_unlock(&lane->lock);
        lane->options.changed(lane->options.changed_arg);
    }
    pthread_mutex_unlock(&children->lock);
}

struct memory_step lane_memory_step(struct lane *lane)
{
    pthread_mutex_lock(&lane->lock);
    const struct memory_step step = {.step = lane->memory_step};
    pthread_mutex_unlock(&lane->lock);
    return step;
}

bool lane_take_loss(struct lane *lane, struct error *why)
{
    pthread_mutex_lock(&lane->lock);
    const bool is_lost = lane->is_lost;
    lane->is_lost = false;
    pthread_mutex_unlock(&lane->lock);
    if (is_lost)
        error_set(why, ERROR_IO, "its process has ended");
    return is_lost;
}

enum pipeline_look lane_look(struct lane *lane, struct error *why)
{
    const bool up = is_up(lane);
    if (!up)
        error_set(why, ERROR_IO, "its process has ended");
    return up ? PIPELINE_LOADED : PIPELINE_RELOADING;
}

uint64_t lane_stage_bytes(struct lane *lane, uint32_t stage)
{
    const struct stage_memory memory = stage_memory(runner_stage(lane->runner, stage));
    return memory.weights + memory.kv + memory.compute + memory.host;
}

/* ---- weights ----------------------------------------------------------------------------- */

struct lane_pin *lane_pin(struct lane *lane, const struct child_range *ranges, uint32_t n)
{
    struct lane_pin *pin = calloc(1, sizeof *pin);
    assert(pin && n <= CHILD_RANGES_MAX);
    for (uint32_t i = 0; i < n && lane->runner; i++) {
        const struct stage *stage = runner_stage(lane->runner, ranges[i].stage);
        pin->stages[pin->n++] = stage_pin(stage, ranges[i].first_layer, ranges[i].n_layers);
    }
    return pin;
}

void lane_unpin(struct lane_pin *pin)
{
    for (uint32_t i = 0; pin && i < pin->n; i++)
        stage_unpin(pin->stages[i]);
    free(pin);
}

/* ---- caches ------------------------------------------------------------------------------ */

enum piece_kind { PIECE_READ, PIECE_WRITE, PIECE_SETTLE };

struct piece {
    struct device_job job; /* first */
    struct lane *lane;
    struct lane_job *asked;
    enum piece_kind kind;
    uint32_t stage;
    struct kv_run run;
    struct buffer message;
};

uint64_t lane_row_bytes(struct lane *lane, uint32_t stage)
{
    const struct stage *of = lane->runner ? runner_stage(lane->runner, stage) : NULL;
    return of ? stage_kv_row_bytes(of) : 8;
}

static enum error_code carry_out(struct piece *piece, struct buffer *rows, struct error *err)
{
    struct stage *stage = runner_pipeline(piece->lane->runner)->stages[piece->stage].stage;
    struct cache_message message;
    if (piece->kind == PIECE_READ)
        return stage_kv_read(
            stage, &piece->run,
            buffer_extend(rows, (size_t)(piece->run.n_rows * stage_kv_row_bytes(stage))), err);
    const enum error_code code =
        cache_read(piece->message.data, piece->message.size, &message, err);
    if (code || piece->kind == PIECE_WRITE)
        return code ? code : stage_kv_write(stage, &message.rows.run, message.rows.bytes, err);
    for (uint32_t i = 0; i < message.offer.n_slots; i++) {
        struct pipeline *pipeline = runner_pipeline(piece->lane->runner);
        stage_kv_set_length(stage, message.offer.slots[i].slot, message.offer.slots[i].n_tokens,
                            NULL);
        for (uint32_t k = 0;
             piece->stage + 1 == pipeline->n_stages && k < message.offer.slots[i].n_tokens; k++) {
            int32_t token;
            memcpy(&token, message.offer.slots[i].tokens + 4 * (size_t)k, sizeof token);
            picker_note(pipeline->picker, message.offer.slots[i].slot, k, token);
        }
    }
    return ERROR_NONE;
}

static void run_piece(struct device_job *job)
{
    struct piece *piece = (struct piece *)job;
    struct buffer rows = {0};
    struct error err = {0};
    if (is_up(piece->lane))
        carry_out(piece, &rows, &err);
    else
        error_set(&err, ERROR_IO, "its process has ended");
    piece->asked->done(piece->asked->arg, rows.data, rows.size, err.code ? &err : NULL);
    buffer_deinit(&rows);
    buffer_deinit(&piece->message);
    free(piece);
}

static void submit(struct lane *lane, struct lane_job *job, struct piece like,
                   const struct buffer *message)
{
    struct piece *piece = calloc(1, sizeof *piece);
    assert(piece);
    *piece = like;
    piece->lane = lane;
    piece->asked = job;
    piece->job.run = run_piece;
    if (message)
        buffer_append(&piece->message, message->data, message->size);
    device_submit(lane->device, &piece->job);
}

void lane_read(struct lane *lane, struct lane_job *job, uint32_t stage, const struct kv_run *run)
{
    submit(lane, job, (struct piece){.kind = PIECE_READ, .stage = stage, .run = *run}, NULL);
}

void lane_write(struct lane *lane, struct lane_job *job, uint32_t stage,
                const struct buffer *message)
{
    submit(lane, job, (struct piece){.kind = PIECE_WRITE, .stage = stage}, message);
}

void lane_settle(struct lane *lane, struct lane_job *job, uint32_t stage,
                 const struct buffer *message)
{
    submit(lane, job, (struct piece){.kind = PIECE_SETTLE, .stage = stage}, message);
}
