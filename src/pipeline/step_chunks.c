/* The driver's step: what micro-batches of prompts take, and so how long they are. By the baton's
 * holder (driver_state.h). */
#include "pipeline/driver_state.h"

enum {
    MEASURED_ROWS_MIN = 32, /* a micro-batch tells the speed of prompts from this size on */
};
static const uint64_t MEASURED_NS_MAX = UINT64_C(3600000000000); /* more is not believed */

uint32_t step_chunk_rows(const struct driver *driver)
{
    struct chunk_prompts prompts = {0};
    for (uint32_t i = 0; i < driver->slots.n_slots; i++) {
        const struct slot *slot = &driver->slots.slots[i];
        if (!slot->sequence || slot->parked)
            continue;
        const uint32_t left = slot->n_known > slot->n_placed ? slot->n_known - slot->n_placed : 0;
        if (slot->sequence->generated && left <= 1)
            continue; /* else it is read again, after a loss */
        prompts.n_rows += slot->n_known - slot->sequence->cached;
        prompts.n_left += left;
        if (slot->sequence->cached > prompts.n_before)
            prompts.n_before = slot->sequence->cached;
    }
    return chunk_rows(&driver->chunks, &prompts, driver->n_devices, driver->options.batch_rows);
}

/* Where somebody on the way did not tell, or told what cannot be, the devices count as equal. */
static void step_measure_devices(struct driver *driver, const struct microbatch *microbatch)
{
    const struct request_times *times = &microbatch->times;
    uint64_t device_ns[LIMIT_STAGES] = {0};
    bool is_known = times->n_stages == driver->pipeline.n_stages;
    double n_before = 0;
    for (uint32_t i = 0; is_known && i < times->n_stages; i++) {
        is_known = times->stages[i].compute_ns && times->stages[i].compute_ns < MEASURED_NS_MAX;
        device_ns[driver->stage_devices[i]] += times->stages[i].compute_ns;
    }
    for (uint32_t i = 0; i < microbatch->n_shares; i++)
        n_before += (double)microbatch->shares[i].n_rows *
                    (microbatch->shares[i].position + microbatch->shares[i].n_rows / 2.0);
    for (uint32_t i = 0; i < driver->n_devices; i++)
        chunk_costs_note(&driver->chunks, i, microbatch->n_rows, n_before,
                         is_known ? device_ns[i] : microbatch->slowest_ns);
}

void step_measure(struct driver *driver, const struct microbatch *microbatch)
{
    const bool has_drafts = microbatch->n_picks > microbatch->n_shares;
    if (microbatch->n_rows < MEASURED_ROWS_MIN || has_drafts)
        return;
    uint64_t row_ns = microbatch->slowest_ns / microbatch->n_rows + 1;
    step_measure_devices(driver, microbatch);
    driver->prompt_row_ns =
        driver->prompt_row_ns ? (3 * driver->prompt_row_ns + row_ns) / 4 : row_ns;
}
