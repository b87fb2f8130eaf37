/* Pieces of KV caches that the node reads or writes (child_cache.h): jobs on the device's thread,
 * behind the micro-batches that came before. */
#include "pipeline/child_room.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "model/model.h"
#include "pipeline/runner.h"

struct piece {
    struct device_job job; /* first */
    struct room *room;
    bool is_as_placed; /* the stages were when it was asked */
    struct buffer record;
    struct child_cache asked; /* points into it */
};

static enum error_code room_read_rows(const struct piece *piece, const struct stage *stage,
                                      struct buffer *answer, struct error *err)
{
    const struct kv_run *run = &piece->asked.run;
    const uint64_t size = run->n_rows * stage_kv_row_bytes(stage);
    const uint64_t most =
        piece->room->open.ring_bytes / 2 - RING_RECORD_BYTES - CHILD_CACHE_HEAD_BYTES;
    void *rows = size <= most ? buffer_extend(answer, (size_t)size) : NULL;
    if (size > most)
        return error_set(err, ERROR_UNSUPPORTED, "a piece of %llu bytes of a cache is too large",
                         (unsigned long long)size);
    if (!rows)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %llu bytes of a cache",
                         (unsigned long long)size);
    return stage_kv_read(stage, run, rows, err);
}

static enum error_code room_write_rows(const struct piece *piece, struct stage *stage,
                                       struct error *err)
{
    const struct cache_message *message = &piece->asked.message;
    if (message->rows.row_bytes != stage_kv_row_bytes(stage))
        return error_set(err, ERROR_INVALID, "rows of %llu bytes; here they have %llu",
                         (unsigned long long)message->rows.row_bytes,
                         (unsigned long long)stage_kv_row_bytes(stage));
    return stage_kv_write(stage, &message->rows.run, message->rows.bytes, err);
}

static enum error_code room_check_offer(const struct piece *piece, struct error *err)
{
    const struct driver_options *options = &piece->room->open.options;
    const struct cache_offer *offer = &piece->asked.message.offer;
    const uint32_t n_vocab = model_hyperparameters(piece->room->model)->n_vocab;
    for (uint32_t i = 0; i < offer->n_slots; i++) {
        if (offer->slots[i].slot >= options->n_slots || offer->slots[i].n_tokens > options->context)
            return error_set(err, ERROR_INVALID, "slot %u with %u tokens", offer->slots[i].slot,
                             offer->slots[i].n_tokens);
        for (uint32_t k = 0; k < offer->slots[i].n_tokens; k++) {
            if (bytes_load(offer->slots[i].tokens + 4 * (size_t)k, 4) >= n_vocab)
                return error_set(err, ERROR_INVALID, "slot %u: a token outside the vocabulary",
                                 offer->slots[i].slot);
        }
    }
    return ERROR_NONE;
}

/* The lengths, all at once, and what the picker has to know of what stands before. */
static enum error_code room_settle(const struct piece *piece, struct pipeline *pipeline,
                                   struct error *err)
{
    const struct cache_offer *offer = &piece->asked.message.offer;
    const bool last = piece->asked.stage + 1 == pipeline->n_stages;
    enum error_code code = room_check_offer(piece, err);
    for (uint32_t i = 0; i < offer->n_slots && !code; i++) {
        const uint32_t slot = offer->slots[i].slot, n = offer->slots[i].n_tokens;
        code = stage_kv_set_length(pipeline->stages[piece->asked.stage].stage, slot, n, err);
        for (uint32_t k = 0; last && k < n; k++)
            picker_note(pipeline->picker, slot, k,
                        (int32_t)bytes_load(offer->slots[i].tokens + 4 * (size_t)k, 4));
    }
    return code;
}

static enum error_code room_carry_out(struct piece *piece, struct buffer *answer, struct error *err)
{
    struct pipeline *pipeline = runner_pipeline(piece->room->runner);
    const uint32_t at = piece->asked.stage;
    struct stage *stage = at < pipeline->n_stages ? pipeline->stages[at].stage : NULL;
    if (!piece->is_as_placed)
        return error_set(err, ERROR_UNSUPPORTED,
                         "stage %u has another form now, for want of memory", at);
    if (!stage)
        return error_set(err, ERROR_INVALID, "stage %u is not here", at);
    switch (piece->asked.kind) {
    case CHILD_CACHE_READ:
        return room_read_rows(piece, stage, answer, err);
    case CHILD_CACHE_WRITE:
        return room_write_rows(piece, stage, err);
    case CHILD_CACHE_SETTLE:
        return room_settle(piece, pipeline, err);
    }
    return error_set(err, ERROR_INVALID, "not a request to a cache");
}

static void room_cache_run(struct device_job *job)
{
    struct piece *piece = (struct piece *)job;
    struct error err = {0};
    struct buffer answer = {0};
    child_answer_write_head(piece->asked.number, ERROR_NONE, &answer);
    const enum error_code code = room_carry_out(piece, &answer, &err);
    if (code) {
        buffer_clear(&answer);
        child_answer_write_head(piece->asked.number, code, &answer);
        buffer_text(&answer, err.text);
    }
    if (answer.failed)
        child_leave(&err); /* no memory for a line of text */
    room_write(piece->room, RECORD_ANSWER, &answer);
    buffer_deinit(&answer);
    buffer_deinit(&piece->record);
    mem_free(piece);
}

void room_take_cache(struct room *room)
{
    struct error err = {0};
    struct piece *piece = mem_new(sizeof *piece);
    if (!piece) {
        error_set(&err, ERROR_NO_MEMORY, "not enough memory for what is asked of a cache");
        child_leave(&err);
    }
    piece->job.run = room_cache_run;
    piece->room = room;
    piece->is_as_placed = runner_is_as_placed(room->runner);
    piece->record = room->message;
    room->message = (struct buffer){0};
    if (child_cache_read(piece->record.data, piece->record.size, &piece->asked, &err))
        child_leave(&err); /* its node never writes that */
    device_submit(room->device, &piece->job);
}
