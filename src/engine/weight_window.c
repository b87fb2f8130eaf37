#include "engine/weight_window.h"

#include <assert.h>
#include <string.h>

/* ---- what stays ---- */

/* Streamed layer k of n among n_layers, evenly: the Bresenham line's steps. */
static bool window_is_step(uint32_t layer, uint32_t n_streamed, uint32_t n_layers)
{
    return (uint64_t)(layer + 1) * n_streamed / n_layers > (uint64_t)layer * n_streamed / n_layers;
}

static uint64_t window_plan_fill(const struct weight_window_layer *layers, uint32_t n_layers,
                                 uint32_t n_streamed, uint32_t n_slots,
                                 struct weight_window_plan *out)
{
    *out = (struct weight_window_plan){.n_streamed = n_streamed, .n_slots = n_slots};
    for (uint32_t i = 0; i < n_layers; i++) {
        out->is_streamed[i] = n_streamed && window_is_step(i, n_streamed, n_layers);
        if (!out->is_streamed[i])
            out->pinned_bytes += layers[i].resident;
        else if (layers[i].slot > out->slot_bytes)
            out->slot_bytes = layers[i].slot;
    }
    return out->pinned_bytes + n_slots * out->slot_bytes;
}

bool weight_window_plan_make(const struct weight_window_layer *layers, uint32_t n_layers,
                             uint64_t budget, struct weight_window_plan *out, uint64_t *least_bytes)
{
    assert(n_layers <= LIMIT_LAYERS);
    *least_bytes = window_plan_fill(layers, n_layers, 0, 0, out);
    if (*least_bytes <= budget)
        return true;
    /* one slot, which the disk and the device use by turns, only where two do not fit */
    for (uint32_t n_slots = WEIGHT_WINDOW_SLOTS; n_slots; n_slots--) {
        for (uint32_t n = 2 * n_slots; n <= n_layers; n += n_slots) {
            const uint64_t bytes = window_plan_fill(layers, n_layers, n, n_slots, out);
            *least_bytes = bytes < *least_bytes ? bytes : *least_bytes;
            if (bytes <= budget)
                return true;
        }
    }
    *out = (struct weight_window_plan){0};
    return false;
}

/* ---- what is next ---- */

static void window_check(const struct weight_window *window)
{
    assert(window->n_slots && window->n_slots <= WEIGHT_WINDOW_SLOTS);
    assert(window->n_streamed % window->n_slots == 0);
    assert(window->used <= window->begun && window->begun <= window->used + window->n_slots);
}

void weight_window_init(struct weight_window *window, uint32_t n_streamed, uint32_t n_slots)
{
    *window = (struct weight_window){.n_streamed = n_streamed, .n_slots = n_slots};
    window_check(window);
}

bool weight_window_begin(struct weight_window *window, uint32_t *streamed, uint32_t *slot)
{
    window_check(window);
    if (window->begun == window->used + window->n_slots)
        return false;
    *streamed = (uint32_t)(window->begun % window->n_streamed);
    *slot = (uint32_t)(window->begun % window->n_slots);
    assert(window->slots[*slot] == WEIGHT_SLOT_EMPTY);
    window->slots[*slot] = WEIGHT_SLOT_FILLING;
    window->begun++;
    return true;
}

void weight_window_filled(struct weight_window *window, uint32_t slot, bool good)
{
    assert(slot < window->n_slots && window->slots[slot] == WEIGHT_SLOT_FILLING);
    window->slots[slot] = good ? WEIGHT_SLOT_READY : WEIGHT_SLOT_FAILED;
}

uint32_t weight_window_next(const struct weight_window *window, enum weight_slot_state *state)
{
    const uint32_t slot = (uint32_t)(window->used % window->n_slots);
    *state = window->slots[slot];
    return slot;
}

void weight_window_release(struct weight_window *window)
{
    const uint32_t slot = (uint32_t)(window->used % window->n_slots);
    assert(window->used < window->begun && window->slots[slot] != WEIGHT_SLOT_FILLING);
    window->slots[slot] = WEIGHT_SLOT_EMPTY;
    window->used++;
    window_check(window);
}

bool weight_window_is_filling(const struct weight_window *window)
{
    for (uint32_t i = 0; i < window->n_slots; i++) {
        if (window->slots[i] == WEIGHT_SLOT_FILLING)
            return true;
    }
    return false;
}

void weight_window_rewind(struct weight_window *window)
{
    assert(!weight_window_is_filling(window));
    weight_window_init(window, window->n_streamed, window->n_slots);
}
