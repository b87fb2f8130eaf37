/* Stages on devices of this process: loading them, and what a micro-batch does there. All of it on
 * the device's own thread. */
#include "pipeline/batch_parts.h"
#include "pipeline/pipeline_impl.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/size_text.h"
#include "model/picture.h"

#include <assert.h>
#include <string.h>
#include <time.h>

/* ---- computing ------------------------------------------------------------------------- */

/* Of the slot so many tokens are what they should be. */
static void device_stage_poison(struct pipeline_stage *stage, uint32_t slot, uint32_t sound)
{
    if (!stage->poisoned[slot] || sound < stage->sound[slot])
        stage->sound[slot] = sound;
    stage->poisoned[slot] = true;
}

static void device_stage_cut(struct pipeline_stage *stage, const struct cache_operation *operation)
{
    stage_kv_truncate(stage->stage, operation->slot, operation->length);
    if (operation->length <= stage->sound[operation->slot])
        stage->poisoned[operation->slot] = false;
}

/* What a slot begins with comes from another, or from a state that was kept. */
static void device_stage_fill(struct pipeline_stage *stage, const struct cache_operation *operation)
{
    const struct stage_checkpoint checkpoint = {operation->checkpoint, operation->checkpoint_id,
                                                operation->length};
    struct error err = {0};
    if (stage->poisoned[operation->from])
        device_stage_poison(stage, operation->slot, 0);
    else if (operation->kind == CACHE_COPY)
        stage_kv_copy(stage->stage, operation->from, operation->slot, operation->length, &err);
    else
        stage_checkpoint_take(stage->stage, operation->from, operation->slot, &checkpoint, &err);
    if (!err.code)
        return;
    /* The sequence starts over without it when its rows come back as dropped. */
    log_line(LOG_WARN, "pipeline", "could not reuse a prefix; computing it again: %s", err.text);
    device_stage_poison(stage, operation->slot, 0);
}

static void device_stage_operate(struct pipeline_stage *stage,
                                 const struct cache_operation *operation)
{
    const struct stage_checkpoint checkpoint = {operation->checkpoint, operation->checkpoint_id,
                                                operation->length};
    switch (operation->kind) {
    case CACHE_CUT:
        device_stage_cut(stage, operation);
        break;
    case CACHE_COPY:
    case CACHE_TAKE:
        device_stage_fill(stage, operation);
        break;
    case CACHE_KEEP:
        if (!stage->poisoned[operation->slot])
            stage_checkpoint_keep(stage->stage, operation->slot, &checkpoint);
        break;
    case CACHE_OPERATION_KINDS:
        assert(false);
    }
}

static struct share *microbatch_share_of(struct microbatch *microbatch, uint32_t slot)
{
    struct share *share = microbatch->shares;
    while (share->slot != slot)
        share++;
    assert(share < microbatch->shares + microbatch->n_shares); /* every row belongs to one */
    return share;
}

static void move_floats(float *rows, size_t to, size_t from, uint32_t width)
{
    if (rows && to != from)
        memcpy(rows + to * width, rows + from * width, width * sizeof(float));
}

/* Closes the gaps that void shares leave in the rows, and in the hidden states and pictures beside
 * them. */
static void microbatch_remove_void_rows(struct microbatch *microbatch, float *hidden,
                                        uint32_t width)
{
    const uint32_t given_width = microbatch->pipeline->shape.given_width;
    uint32_t kept = 0, given = 0, given_kept = 0;
    for (uint32_t i = 0; i < microbatch->n_rows; i++) {
        const bool is_given =
            microbatch->n_given && microbatch->rows[i].token >= PICTURE_TOKEN_FIRST;
        given += is_given;
        if (share_is_void(microbatch_share_of(microbatch, microbatch->rows[i].slot)))
            continue;
        if (is_given)
            move_floats(microbatch->given, given_kept++, given - 1, given_width);
        microbatch->rows[kept] = microbatch->rows[i];
        if (microbatch->has_places)
            microbatch->places[kept] = microbatch->places[i];
        move_floats(hidden, kept++, i, width);
    }
    microbatch->n_rows = kept;
    microbatch->n_given = given_kept;
}

/* The slot of a share that was not computed to its end. What was halted leaves what came before it;
 * of what was dropped, who dropped it knows more. */
static void device_stage_poison_share(const struct microbatch *microbatch,
                                      struct pipeline_stage *stage, const struct share *share)
{
    uint32_t sound = 0;
    if (stage->poisoned[share->slot] && share->dropped)
        return;
    if (share->failed && microbatch_was_halted(microbatch) && stage->stage)
        sound = stage_kv_length(stage->stage, share->slot);
    device_stage_poison(stage, share->slot, sound < share->position ? sound : share->position);
}

/* Drops the rows of poisoned slots, and poisons the slots of rows dropped or failed before this
 * stage. */
static void device_stage_drop_poisoned(struct microbatch *microbatch, struct pipeline_stage *stage,
                                       float *hidden)
{
    bool dropped = false;
    for (uint32_t i = 0; i < microbatch->n_shares; i++) {
        struct share *share = &microbatch->shares[i];
        if (share_is_void(share)) {
            device_stage_poison_share(microbatch, stage, share);
        } else if (stage->poisoned[share->slot]) {
            share->dropped = dropped = true;
        }
    }
    if (dropped)
        microbatch_remove_void_rows(microbatch, hidden, stage_width(stage->stage));
}

static void device_stage_fail(struct microbatch *microbatch, struct pipeline_stage *stage)
{
    microbatch_fail(microbatch);
    for (uint32_t i = 0; i < microbatch->n_shares; i++)
        device_stage_poison_share(microbatch, stage, &microbatch->shares[i]);
}

enum { NO_MEMORY_WAIT_NS = 50 * 1000 * 1000, NO_MEMORY_WAITS = 4 }; /* 0.2 s */

struct stage_attempt {
    struct stage *stage;
    uint32_t n_waits;
};

static enum error_code device_stage_attempt(void *arg, const struct batch *batch, const float *in,
                                            float *out, struct error *err)
{
    return stage_forward(((struct stage_attempt *)arg)->stage, batch, in, out, err);
}

/* Not for long: the device has other stages, and requests may be cancelled. */
static bool device_stage_wait(void *arg)
{
    struct stage_attempt *attempt = arg;
    const struct timespec pause = {.tv_nsec = NO_MEMORY_WAIT_NS};
    if (attempt->n_waits++ == NO_MEMORY_WAITS)
        return false;
    nanosleep(&pause, NULL);
    return true;
}

static bool microbatch_asks(void *microbatch)
{
    return atomic_load_explicit(&((struct microbatch *)microbatch)->is_halted,
                                memory_order_relaxed);
}

static bool microbatch_sees_ahead(const struct microbatch *microbatch)
{
    uint32_t i = 0;
    while (microbatch->has_places && i < microbatch->n_rows && !microbatch->places[i].ahead)
        i++;
    return microbatch->has_places && i < microbatch->n_rows;
}

/* In parts where memory is short; after an error the cache is as it was. */
static enum error_code device_stage_run_parts(struct microbatch *microbatch,
                                              struct pipeline_stage *stage,
                                              const struct batch *batch, const float *in,
                                              float *out, bool last)
{
    struct stage_attempt attempt = {.stage = stage->stage};
    const struct batch_parts parts = {
        .forward = device_stage_attempt,
        .wait = device_stage_wait,
        .arg = &attempt,
        .in_width = stage_width(stage->stage),
        .out_width = last && !batch->embeddings ? stage_output_width(stage->stage)
                     : last                     ? stage_vector_width(stage->stage)
                                                : stage_width(stage->stage),
        .rows_max = atomic_load_explicit(&microbatch->pipeline->part_rows, memory_order_relaxed),
        .given_width = stage_given_width(stage->stage),
        .whole = stage_reads_whole(stage->stage) || microbatch_sees_ahead(microbatch),
        .outputs_only = last,
    };
    const enum error_code code =
        batch_parts_run(&parts, batch, in, out, &microbatch->was_short, &microbatch->error);
    for (uint32_t i = 0; code && i < batch->n_rows; i++) {
        if (!i || batch->rows[i].slot != batch->rows[i - 1].slot)
            stage_kv_truncate(stage->stage, batch->rows[i].slot, batch->rows[i].position);
    }
    return code;
}

static void device_stage_forward(struct microbatch *microbatch, struct pipeline_stage *stage,
                                 const float *in, bool last)
{
    const bool takes_given = microbatch->n_given && stage_given_width(stage->stage);
    const struct batch batch = {
        .rows = microbatch->rows,
        .n_rows = microbatch->n_rows,
        .embeddings = microbatch->embeddings,
        .given = takes_given ? microbatch->given : NULL,
        .places = microbatch->has_places ? microbatch->places : NULL,
        .stops = microbatch_asks,
        .stops_arg = microbatch,
    };
    float *out = microbatch->hidden[microbatch->at & 1];
    if (last)
        out = batch_output_count(&batch) ? microbatch->outputs : NULL;
    uint64_t start_ns = clock_now_ns();
    enum error_code code = device_stage_run_parts(microbatch, stage, &batch, in, out, last);
    uint64_t spent_ns = clock_now_ns() - start_ns;
    atomic_fetch_add_explicit(&stage->busy_ns, spent_ns, memory_order_relaxed);
    if (spent_ns > microbatch->slowest_ns)
        microbatch->slowest_ns = spent_ns;
    if (!code)
        return;
    if (code == ERROR_IO) /* a lost link may come back, and its requests wait; a disk does not */
        microbatch->error.code = ERROR_DEVICE;
    error_wrap(&microbatch->error, "stage %u on %s", microbatch->at,
               device_info(stage->device)->id);
    device_stage_fail(microbatch, stage);
}

/* What the picker must know before it picks; the tokens of void rows are right, too. */
static void microbatch_tell_picker(const struct microbatch *microbatch, struct picker *picker)
{
    for (uint32_t i = 0; i < microbatch->n_setups; i++)
        picker_setup(picker, &microbatch->setups[i]);
    for (uint32_t i = 0; i < microbatch->n_operations; i++) {
        const struct cache_operation *operation = &microbatch->operations[i];
        if (operation->kind == CACHE_COPY ||
            (operation->kind == CACHE_TAKE && operation->from != operation->slot))
            picker_copy(picker, operation->from, operation->slot, operation->length);
    }
    for (uint32_t i = 0; i < microbatch->n_rows; i++)
        picker_note(picker, microbatch->rows[i].slot, microbatch->rows[i].position,
                    microbatch->rows[i].token);
}

/* One token after the other, each from the row that has those before it: as far as the guess that
 * was the next row's is right. */
static void microbatch_pick_share(struct microbatch *microbatch, struct share *share,
                                  struct picker *picker, const float *logits, uint32_t width)
{
    const uint32_t first = share->position + share->n_rows - share->n_drafted;
    struct error why = {0};
    for (share->n_picks = 0; share->n_picks <= share->n_drafted; logits += width) {
        const uint32_t position = first + share->n_picks;
        struct pick *pick = &microbatch->picks[share->first_pick + share->n_picks++];
        picker_pick(picker, share->slot, position, logits, pick, &why);
        if (pick->token < 0 || share->n_picks > share->n_drafted ||
            pick->token != picker_token(picker, share->slot, position))
            break;
    }
    if (why.code && !microbatch->error.code)
        microbatch->error = why;
}

static void microbatch_pick_tokens(struct microbatch *microbatch, struct picker *picker,
                                   uint32_t width)
{
    const float *outputs = microbatch->outputs;
    for (uint32_t i = 0; i < microbatch->n_shares; i++) {
        struct share *share = &microbatch->shares[i];
        if (share_is_void(share))
            continue;
        outputs += (size_t)share->n_outputs * width;
        if (share->pick)
            microbatch_pick_share(microbatch, share, picker,
                                  outputs - (size_t)share_picks_room(share) * width, width);
    }
}

/* There was no memory to open it anew (pipeline_form.h): as where a batch finds none. */
static void device_stage_lack(struct microbatch *microbatch, struct pipeline_stage *stage)
{
    struct stage_attempt attempt = {0};
    while (device_stage_wait(&attempt))
        continue;
    device_stage_fail(microbatch, stage);
    if (microbatch->error.code)
        return;
    microbatch->was_short = true;
    error_set(&microbatch->error, ERROR_NO_MEMORY, "stage %u: not enough memory on %s to load it",
              microbatch->at, device_info(stage->device)->id);
}

/* Host memory is short, too: what is there of caches goes. Who asks for such a prefix has its rows
 * dropped, and computes it again. */
static void device_stage_drop_away(const struct pipeline *pipeline, struct pipeline_stage *stage)
{
    for (uint32_t slot = 0; slot < pipeline->shape.n_slots; slot++) {
        if (!stage_kv_is_away(stage->stage, slot))
            continue;
        stage_kv_truncate(stage->stage, slot, 0);
        device_stage_poison(stage, slot, 0);
    }
}

/* Where memory is short, what nobody uses of the cache goes; when it is free again, what went to
 * host memory comes back. */
static void device_stage_mind_cache(const struct pipeline *pipeline, struct pipeline_stage *stage)
{
    const bool moves = stage_kv_moves(stage->stage);
    if (!atomic_load_explicit(&pipeline->gives_back, memory_order_relaxed)) {
        stage_kv_take_back(stage->stage);
        return;
    }
    if (moves && atomic_load_explicit(&pipeline->drops, memory_order_relaxed))
        device_stage_drop_away(pipeline, stage);
    stage_checkpoints_drop(stage->stage);
    const uint64_t bytes = stage_kv_give_back(stage->stage);
    if (bytes && moves)
        log_line(LOG_INFO, "memory", "%s: the KV cache takes %s less, %s of it in host memory",
                 device_info(stage->device)->id, size_text(bytes).text,
                 size_text(stage_kv_bytes_away(stage->stage)).text);
}

static void device_stage_compute(struct microbatch *microbatch)
{
    struct pipeline *pipeline = microbatch->pipeline;
    struct pipeline_stage *stage = &pipeline->stages[microbatch->at];
    if (!stage->stage) {
        microbatch->has_stable_bits = microbatch->knows_checkpoints = false;
        if (microbatch->at + 1 == pipeline->n_stages)
            microbatch_tell_picker(microbatch, pipeline->picker);
        device_stage_lack(microbatch, stage);
        return;
    }
    microbatch->has_stable_bits =
        microbatch->has_stable_bits && stage_has_stable_bits(stage->stage);
    for (uint32_t i = 0; i < microbatch->n_operations; i++)
        device_stage_operate(stage, &microbatch->operations[i]);
    device_stage_mind_cache(pipeline, stage);
    float *in = microbatch->at ? microbatch->hidden[(microbatch->at - 1) & 1] : NULL;
    assert(!microbatch->at || in);
    device_stage_drop_poisoned(microbatch, stage, in);
    bool last = microbatch->at + 1 == pipeline->n_stages;
    assert(!last || pipeline->picker);
    assert(microbatch->n_rows <= pipeline->shape.rows);
    if (last)
        microbatch_tell_picker(microbatch, pipeline->picker);
    if (microbatch->n_rows)
        device_stage_forward(microbatch, stage, in, last);
    if (last && microbatch->n_rows && !microbatch->embeddings)
        microbatch_pick_tokens(microbatch, pipeline->picker, stage_output_width(stage->stage));
}

/* The thread computes itself, or waits for others of this process that do. */
static bool device_stage_is_processor(const struct microbatch *microbatch)
{
    const struct device *device = microbatch->pipeline->stages[microbatch->at].device;
    return strcmp(device_info(device)->backend, "cpu") == 0;
}

/* The time of waiting ends where that of computing begins, and the other way round. */
static void device_stage_time(struct microbatch *microbatch)
{
    struct request_stage_time *time = &microbatch->times.stages[microbatch->at];
    const uint64_t begun_ns = clock_now_ns(), worked_ns = clock_thread_ns();
    assert(microbatch->at < LIMIT_STAGES && microbatch->since_ns <= begun_ns);
    time->wait_ns = begun_ns - microbatch->since_ns;
    device_stage_compute(microbatch);
    microbatch->since_ns = clock_now_ns();
    time->compute_ns = microbatch->since_ns - begun_ns;
    const uint64_t had_ns = clock_thread_ns() - worked_ns;
    if (device_stage_is_processor(microbatch) && had_ns < time->compute_ns)
        microbatch->held_up_ns += time->compute_ns - had_ns;
}

static void device_stage_run(struct device_job *job)
{
    struct microbatch *microbatch = (struct microbatch *)job; /* its first member */
    struct pipeline *pipeline = microbatch->pipeline;
    struct device *here = pipeline->stages[microbatch->at].device;
    assert(here);
    do {
        device_stage_time(microbatch);
        microbatch->at++;
    } while (microbatch->at < pipeline->n_stages &&
             pipeline->stages[microbatch->at].device == here);
    microbatch_go_on(microbatch);
}

/* The stages that follow on this device are computed in one go; the loop ends at one of another. */
static void device_stage_send(struct pipeline *pipeline, struct microbatch *microbatch)
{
    struct device *device = pipeline->stages[microbatch->at].device;
    assert(device);
    microbatch->job.run = device_stage_run;
    device_submit(device, &microbatch->job);
}

/* Its values have to be in a micro-batch of the owner's first. */
static enum error_code device_stage_pass(struct pipeline *pipeline,
                                         const struct microbatch_message *message,
                                         struct error *err)
{
    return pipeline->owner->arrive(pipeline->arg, message, err);
}

/* ---- opening and closing --------------------------------------------------------------- */

static void device_stage_run_opening(struct device_job *job)
{
    struct pipeline_opening *opening = (struct pipeline_opening *)job; /* its first member */
    struct pipeline_stage *stage = &opening->pipeline->stages[opening->at];
    assert(!stage->stage);
    const struct driver_options *options = opening->options;
    const uint64_t own_max = opening->plan[opening->at].weights_max;
    const struct stage_options stage_options = {
        .first_layer = opening->first_layer,
        .n_layers = stage->n_layers,
        .n_slots = options->n_slots,
        .context = options->context,
        .cells = options->cells,
        .rows_max = options->batch_rows,
        .kv_type = options->kv_type,
        .flash = options->flash,
        .no_repack = options->no_repack,
        .weights_max = own_max ? own_max : options->weights_max,
        .precision = options->precision,
        .checkpoints = options->checkpoints,
        .stop = options->stop,
    };
    opening->code =
        stage_open(stage->device, opening->model, &stage_options, &stage->stage, &opening->error);
    if (opening->code)
        error_wrap(&opening->error, "stage %u (layers %u-%u on %s)", opening->at,
                   opening->first_layer, opening->first_layer + stage->n_layers - 1,
                   device_info(stage->device)->id);
    pipeline_opened(opening);
}

static void device_stage_open(struct pipeline_opening *opening)
{
    assert(opening->latch);
    opening->job.run = device_stage_run_opening;
    device_submit(opening->pipeline->stages[opening->at].device, &opening->job);
}

/* The stage's last job on its device; from the stack, for closing must not need memory. */
struct stage_closing {
    struct device_job job; /* first */
    struct latch latch;
    struct pipeline_stage *stage;
};

static void device_stage_run_closing(struct device_job *job)
{
    struct stage_closing *closing = (struct stage_closing *)job;
    stage_close(closing->stage->stage);
    closing->stage->stage = NULL;
    latch_arrive(&closing->latch);
}

static void device_stage_close(struct pipeline *pipeline, uint32_t at)
{
    struct stage_closing closing = {.job = {.run = device_stage_run_closing},
                                    .stage = &pipeline->stages[at]};
    if (!closing.stage->stage)
        return;
    latch_init(&closing.latch, 1);
    device_submit(closing.stage->device, &closing.job);
    latch_wait(&closing.latch);
}

/* ---- questions ------------------------------------------------------------------------- */

static uint64_t device_stage_bytes(struct pipeline *pipeline, uint32_t at)
{
    assert(pipeline->stages[at].stage);
    const struct stage_memory memory = stage_memory(pipeline->stages[at].stage);
    return memory.weights + memory.kv + memory.compute + memory.host;
}

static uint64_t device_stage_row_bytes(struct pipeline *pipeline, uint32_t at)
{
    return stage_kv_row_bytes(pipeline->stages[at].stage);
}

const struct pipeline_impl pipeline_on_device = {
    .name = "device",
    .open = device_stage_open,
    .close = device_stage_close,
    .send = device_stage_send,
    .pass = device_stage_pass,
    .bytes = device_stage_bytes,
    .row_bytes = device_stage_row_bytes,
};
