/* The compute buffers of a stage: what the engine says of them, or an estimate where no device is
 * at hand.
 *
 * They do not depend on the number of layers, which reuse each other's; on the first stage they
 * also hold what is looked up, on the last the logits. */
#pragma once

#include "pipeline/driver.h"

struct plan_compute { /* bytes */
    uint64_t stage;   /* of a stage in the middle */
    uint64_t input;   /* more on the first */
    uint64_t output;  /* more on the last */
};

/* By the engine's own calculation (stage_measure) on this device: its largest graphs, of the first,
 * the middle and the last layers. On the device's own thread; blocks for some milliseconds. Errors
 * of stage_measure(). */
enum error_code plan_compute_measure(struct device *device, const struct model *model,
                                     const struct driver_options *options, struct plan_compute *out,
                                     struct error *err);

/* Of all these devices: the most that any of them asks for. Simulated devices all compute on the
 * CPU: one of them is asked. */
enum error_code plan_compute_measure_all(struct device *const *devices, uint32_t n_devices,
                                         const struct model *model,
                                         const struct driver_options *options,
                                         struct plan_compute *out, struct error *err);

/* The greatest of each, so that one figure holds for several devices. */
void plan_compute_max(struct plan_compute *compute, const struct plan_compute *other);

/* What a stage's buffers are smaller by, at least, for each cell that the context is shorter by:
 * the masks, which are there all the time, but nothing below what the estimate has for no context,
 * because a part that does not depend on it may then be the largest. */
uint64_t plan_compute_per_cell(const struct plan_compute *compute, const struct model *model,
                               const struct driver_options *options);

/* What lives at the same time in the largest graph of r rows (engine/graph*.c), as F32, and the F16
 * masks:
 *
 *     layer   r (4 n_embd + 3 n_carried + max(3 n_ff, 3 q + 2 (k + v)))     n_ff of a mixture: of
 *             all experts of a token, and 2 n_experts
 *     masks   2 r c for each kind (windowed or not) of c cells
 *     chosen  4 r c, by an indexer
 *     scores  without flash attention: 2 r c n_head, and C v
 *     copy    C (k + v), of the cache's type, where slots share C cells (kv_gather.h)
 *     output  r (n_vocab + n_embd)
 *
 * r = rows of a micro-batch, c = cells of the context, C = of all slots together; with FLASH_AUTO
 * as if every device had ggml's flash attention. The CPU's own attention needs neither masks nor
 * copies, but some 0.1 MB a thread, which is not in this. Pure. */
void plan_compute_estimate(const struct model *model, const struct driver_options *options,
                           struct plan_compute *out);
