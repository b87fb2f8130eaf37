#include "engine/state_checkpoint.h"

#include "base/mem.h"
#include "engine/kv_away.h"
#include "engine/stage_state.h"

#include <assert.h>

enum error_code state_checkpoints_init(struct state_checkpoints *checkpoints,
                                       const struct recurrent_state *state, uint32_t n,
                                       struct error *err)
{
    *checkpoints = (struct state_checkpoints){0};
    for (uint32_t i = 0; i < state->n_layers; i++)
        checkpoints->bytes_each += recurrent_state_layer_bytes(state, i);
    if (!n || !checkpoints->bytes_each)
        return ERROR_NONE;
    checkpoints->list = mem_new_array(n, sizeof *checkpoints->list);
    if (!checkpoints->list)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %u checkpoints", n);
    checkpoints->n = n;
    return ERROR_NONE;
}

uint64_t state_checkpoints_bytes_max(const struct state_checkpoints *checkpoints)
{
    return checkpoints->n * checkpoints->bytes_each;
}

uint64_t state_checkpoints_drop(struct state_checkpoints *checkpoints)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < checkpoints->n; i++) {
        bytes += checkpoints->list[i].bytes ? checkpoints->bytes_each : 0;
        mem_free(checkpoints->list[i].bytes);
        checkpoints->list[i] = (struct state_checkpoint){0};
    }
    return bytes;
}

void state_checkpoints_deinit(struct state_checkpoints *checkpoints)
{
    if (!checkpoints)
        return;
    state_checkpoints_drop(checkpoints);
    mem_free(checkpoints->list);
    *checkpoints = (struct state_checkpoints){0};
}

/* ---- of a stage ------------------------------------------------------------------------------ */

uint64_t stage_checkpoints_drop(struct stage *stage)
{
    return state_checkpoints_drop(&stage->checkpoints);
}

void stage_checkpoint_keep(struct stage *stage, uint32_t slot,
                           const struct stage_checkpoint *checkpoint)
{
    struct state_checkpoints *all = &stage->checkpoints;
    assert(slot < stage->options.n_slots && checkpoint->id);
    if (checkpoint->index >= all->n)
        return;
    struct state_checkpoint *kept = &all->list[checkpoint->index];
    kept->id = 0;
    if (!checkpoint->length || stage->kv.lengths[slot] != checkpoint->length)
        return;
    if (!kept->bytes && !(kept->bytes = mem_new(all->bytes_each)))
        return;
    uint64_t at = 0;
    for (uint32_t i = 0; i < stage->state.n_layers; i++) {
        const uint64_t size = recurrent_state_layer_bytes(&stage->state, i);
        if (size)
            recurrent_state_read(&stage->state, i, slot, 0, size, (char *)kept->bytes + at);
        at += size;
    }
    assert(at == all->bytes_each);
    kept->id = checkpoint->id;
    kept->length = checkpoint->length;
}

static void checkpoint_write(struct stage *stage, const struct state_checkpoint *kept, uint32_t to)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < stage->state.n_layers; i++) {
        const uint64_t size = recurrent_state_layer_bytes(&stage->state, i);
        if (size)
            recurrent_state_write(&stage->state, i, to, 0, size, (const char *)kept->bytes + at);
        at += size;
    }
}

/* NULL: that one is not here. */
static const struct state_checkpoint *checkpoint_find(const struct stage *stage,
                                                      const struct stage_checkpoint *checkpoint)
{
    const struct state_checkpoints *all = &stage->checkpoints;
    const struct state_checkpoint *kept =
        checkpoint->index < all->n ? &all->list[checkpoint->index] : NULL;
    return kept && kept->id == checkpoint->id && kept->length == checkpoint->length ? kept : NULL;
}

enum error_code stage_checkpoint_take(struct stage *stage, uint32_t from, uint32_t to,
                                      const struct stage_checkpoint *checkpoint, struct error *err)
{
    struct kv_cache *kv = &stage->kv;
    const uint32_t length = checkpoint->length, n_slots = stage->options.n_slots;
    assert(checkpoint->id);
    if (from >= n_slots || to >= n_slots || !length || length > kv->lengths[from])
        return error_set(err, ERROR_INVALID, "slot %u has no %u tokens for slot %u to begin with",
                         from, length, to);
    const struct state_checkpoint *kept = checkpoint_find(stage, checkpoint);
    if (stage->state.n_recurrent && !kept)
        return error_set(err, ERROR_NOT_FOUND, "the state of slot %u's first %u tokens is gone",
                         from, length);
    kv_away_begin(kv);
    const enum error_code code = from == to ? ERROR_NONE : kv_cache_copy(kv, from, to, length, err);
    if (code)
        return code;
    kv->lengths[to] = length;
    if (from == to)
        kv_cache_cut(kv, to);
    if (kept)
        checkpoint_write(stage, kept, to);
    return ERROR_NONE;
}
