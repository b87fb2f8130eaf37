/* A machine and a model of toys, put in the place of the real ones when the program is linked:
 * fake_device.c implements what the pipeline uses of gpu.h (a thread a device), fake_stage.c all of
 * engine/stage.h and the model's sizes. The driver runs on it without weights, thousands of times a
 * second.
 *
 * The toy model: each layer keeps, for every position of a slot, a hash of everything that stood
 * at the positions before and of what the layer below made of this one. Logits are random numbers
 * drawn from the last layer's hash. So a wrong token, order, position, slot, or a cache that was
 * not cut where it should have been, changes every logit that follows, and how the layers
 * are split over stages changes nothing. */
#pragma once

#include "engine/sampler.h"
#include "engine/stage.h"
#include "gpu/gpu.h"
#include "model/model.h"

enum { FAKE_VOCAB = 97, FAKE_EMBD = 8, FAKE_LAYERS = 8 };

struct device *fake_device_open(const char *id, uint64_t free_bytes,
                                uint64_t bandwidth_mb_per_s); /* 0: not measured */
void fake_device_close(struct device *device);                /* after its queue has drained */
void fake_device_hold(struct device *device, bool held);      /* its jobs wait while it is held */
struct gpu *fake_gpu_new(struct device *const *devices,
                         uint32_t n);           /* for gpu_find(); at most 8. free() it */
const struct device *fake_device_current(void); /* whose thread this is; NULL: none's */

const struct model *
fake_model(void); /* FAKE_LAYERS layers of 1000 bytes, trained for a context of 2000 */

/* What the stages do beside computing; from the next call on. */
struct fake_faults {
    uint32_t forward_per_mille; /* forwards that fail */
    uint32_t copy_per_mille;    /* copies that fail */
    uint32_t delay_us_max;      /* a forward takes up to this long */
    bool strangers; /* rows and copies that do not fit the cache are refused, as a real stage does:
                       for tests where a stage was opened anew under a driver. Else they are a fault
                       of the driver's */
    uint32_t open_fails_at; /* the layer, from 1 on, whose stage cannot be opened; 0: none */
    bool read_fails;        /* caches cannot be read */
    uint64_t seed;
};
void fake_set_faults(struct fake_faults faults);
/* Stages that are opened from now on have a state beside keys and values. */
void fake_set_states(bool has);
void fake_fail_next(uint32_t layer); /* the next forward of the stage with that layer fails, once */
void fake_set_memory(uint32_t rows); /* forwards of more rows find no memory; UINT32_MAX: all do */
/* Bytes of a device; a stage takes 1000 a layer for its weights, 250 at any other precision, or
 * weights_max where that is less, and as much for its caches, with Q8_0 half of it; on a device
 * called "cpu" nothing. With less there is no opening, and no computing. UINT32_MAX: no limit */
void fake_set_room(uint32_t bytes);
/* Forwards wait while it is set, until they are wanted no more. A forward looks for that before
 * each row (stage.h). */
void fake_block(bool blocked);
/* The forward of the stage with that layer waits in its middle, before a row of this position,
 * until it is wanted no more, or another position is set; 0: none does. */
void fake_pause_at(uint32_t layer, uint32_t position);
bool fake_is_paused(void); /* one does */
uint32_t fake_stages_open(void);
uint32_t fake_pins_open(void); /* stage_pin() that were not dropped */
/* Pools can go to host memory; the next `n_away` slots that are looked at are there. */
void fake_set_caches(bool move, uint32_t n_away);
uint32_t fake_caches_away(void); /* those that are still to come */
uint32_t fake_given_back(void);  /* calls of stage_kv_give_back() */

/* In so many of a hundred places the toy goes on with a token that follows from the last one, so
 * its text soon repeats itself; 0: never. Of stages and fake_logits(), from the next call on. */
void fake_set_repeats(uint32_t percent);
void fake_set_bits_differ(bool differ); /* what stage_has_stable_bits() denies */

/* Every batch that the first layer's stage has computed. */
struct fake_trace {
    uint32_t n_batches;
    uint64_t n_rows;
    uint32_t rows_max, outputs_max,
        decode_rows_max; /* of one batch; a decode row is one that is alone in its slot */
    uint32_t copies;
    uint32_t takes; /* of states that were kept */
    /* On any stage: batches that were stopped, and the rows that they had computed until then */
    uint32_t n_stopped;
    uint64_t n_rows_stopped;
};
struct fake_trace fake_trace(void);
void fake_trace_clear(void);

/* The logits that follow `tokens`, and the hidden state there, computed plainly. */
void fake_logits(const int32_t *tokens, uint32_t n, float *logits);
void fake_hidden(const int32_t *tokens, uint32_t n, float *hidden);
