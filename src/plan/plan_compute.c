#include "plan/plan_compute.h"

#include "engine/batch_shape.h"
#include "gpu/gpu.h"
#include "model/model.h"

#include <pthread.h>

static uint64_t plan_compute_larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void plan_compute_max(struct plan_compute *compute, const struct plan_compute *other)
{
    compute->stage = plan_compute_larger(compute->stage, other->stage);
    compute->input = plan_compute_larger(compute->input, other->input);
    compute->output = plan_compute_larger(compute->output, other->output);
}

/* ---- measured ------------------------------------------------------------------------- */

struct measuring {
    struct device_job job;
    struct device *device;
    const struct model *model;
    const struct driver_options *options;
    struct plan_compute result;
    enum error_code code;
    struct error error;

    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_done;
};

static uint64_t plan_compute_measure_stage(struct measuring *self, uint32_t first_layer,
                                           uint32_t n_layers)
{
    const struct stage_options options = {
        .first_layer = first_layer,
        .n_layers = n_layers,
        .n_slots = self->options->n_slots,
        .context = self->options->context,
        .cells = self->options->cells,
        .rows_max = self->options->batch_rows,
        .kv_type = self->options->kv_type,
        .flash = self->options->flash,
        .no_repack = self->options->no_repack,
        .precision = self->options->precision,
    };
    struct stage_memory memory = {0};
    if (!self->code)
        self->code = stage_measure(self->device, self->model, &options, &memory, &self->error);
    return memory.compute;
}

/* Of a model that is measured whole. A later stage has hidden states for an input, and the last
 * layer alone may find less to reuse than several. */
static uint64_t measure_small(struct measuring *self, uint32_t n_layers)
{
    uint64_t most = plan_compute_measure_stage(self, 0, n_layers);
    if (n_layers > 1)
        most = plan_compute_larger(most, plan_compute_measure_stage(self, 1, n_layers - 1));
    return plan_compute_larger(most, plan_compute_measure_stage(self, n_layers - 1, 1));
}

/* Layers behind the embedding in which memory may fall into pieces that nothing fits: up to the
 * fourth one. */
enum { PIECES_BEHIND = 2 };

/* As many layers as show every kind of layer and every kind of neighbours: enough, and quicker than
 * all. */
static void measure_ends(struct measuring *self)
{
    const struct hyperparameters *h = model_hyperparameters(self->model);
    const uint32_t n = hyperparameters_period(h) + 1;
    if (n >= h->n_layers) {
        self->result = (struct plan_compute){.stage = measure_small(self, h->n_layers)};
        return;
    }
    const uint64_t alone = plan_compute_measure_stage(self, h->n_layers - 1, 1);
    const uint32_t n_first = n + PIECES_BEHIND < h->n_layers ? n + PIECES_BEHIND : h->n_layers - 1;
    const uint64_t first = plan_compute_measure_stage(self, 0, n_first),
                   last = plan_compute_larger(plan_compute_measure_stage(self, h->n_layers - n, n),
                                              alone);
    uint64_t middle = first < last ? first : last;
    if (h->n_layers > n + 1)
        middle = plan_compute_measure_stage(self, 1, n);
    self->result = (struct plan_compute){
        .stage = middle,
        .input = first > middle ? first - middle : 0,
        .output = last > middle ? last - middle : 0,
    };
}

static void plan_compute_run(struct device_job *job)
{
    struct measuring *self = (struct measuring *)job; /* its first member */
    measure_ends(self);
    pthread_mutex_lock(&self->lock);
    self->is_done = true;
    pthread_cond_signal(&self->done);
    pthread_mutex_unlock(&self->lock);
}

enum error_code plan_compute_measure(struct device *device, const struct model *model,
                                     const struct driver_options *options, struct plan_compute *out,
                                     struct error *err)
{
    struct measuring self = {
        .job.run = plan_compute_run, .device = device, .model = model, .options = options};
    pthread_mutex_init(&self.lock, NULL);
    pthread_cond_init(&self.done, NULL);
    device_submit(device, &self.job);
    pthread_mutex_lock(&self.lock);
    while (!self.is_done)
        pthread_cond_wait(&self.done, &self.lock);
    pthread_mutex_unlock(&self.lock);
    pthread_cond_destroy(&self.done);
    pthread_mutex_destroy(&self.lock);
    *out = self.result;
    return self.code ? error_set(err, self.code, "%s", self.error.text) : ERROR_NONE;
}

enum error_code plan_compute_measure_all(struct device *const *devices, uint32_t n_devices,
                                         const struct model *model,
                                         const struct driver_options *options,
                                         struct plan_compute *out, struct error *err)
{
    bool asked_simulated = false;
    *out = (struct plan_compute){0};
    for (uint32_t i = 0; i < n_devices; i++) {
        struct device_speed speed;
        struct plan_compute compute;
        if (device_given_speed(devices[i], &speed)) {
            if (asked_simulated)
                continue;
            asked_simulated = true;
        }
        enum error_code code = plan_compute_measure(devices[i], model, options, &compute, err);
        if (code)
            return code;
        plan_compute_max(out, &compute);
    }
    return ERROR_NONE;
}

/* ---- estimated ------------------------------------------------------------------------ */

/* Of windowed layers' cells, those that a longer context does not make more. */
static uint64_t ring_cells(const struct model *model, const struct driver_options *options)
{
    const uint32_t window = model_hyperparameters(model)->window;
    const uint32_t ring = kv_window_cells(window, options->batch_rows, options->context);
    return ring < kv_cells(options->context) ? ring : 0;
}

static uint64_t masks_per_cell(const struct model *model, const struct driver_options *options)
{
    const bool two = model_hyperparameters(model)->window && !ring_cells(model, options);
    return 2 * (uint64_t)options->batch_rows * (two ? 2u : 1u);
}

uint64_t plan_compute_per_cell(const struct plan_compute *compute, const struct model *model,
                               const struct driver_options *options)
{
    struct driver_options none = *options;
    struct plan_compute least;
    const uint64_t cells = kv_cells(options->context), masks = masks_per_cell(model, options);
    none.flash = FLASH_AUTO;
    plan_compute_estimate(model, &none, &least);
    least.stage -= masks * cells;
    const uint64_t most =
        compute->stage > least.stage && cells ? (compute->stage - least.stage) / cells : 0;
    return most < masks ? most : masks;
}

void plan_compute_estimate(const struct model *model, const struct driver_options *options,
                           struct plan_compute *out)
{
    const struct hyperparameters *h = model_hyperparameters(model);
    const uint64_t rows = options->batch_rows, cells = kv_cells(options->context);
    const uint64_t q = (uint64_t)h->n_head * plan_compute_larger(h->n_head_dim_k, h->n_head_dim_v);
    const uint64_t kv = (uint64_t)h->n_head_kv * (h->n_head_dim_k + h->n_head_dim_v);
    const uint64_t experts =
        (uint64_t)h->n_experts_used * h->n_ff_expert + h->n_ff_shared + 2 * (uint64_t)h->n_experts;
    const uint64_t ffn = 3 * plan_compute_larger(h->n_ff, h->n_experts ? experts : 0),
                   attention = 3 * q + 2 * kv;
    out->stage = rows *
                     (4 * (uint64_t)h->n_embd + 3 * (uint64_t)h->n_carried +
                      plan_compute_larger(ffn, attention)) *
                     sizeof(float) +
                 masks_per_cell(model, options) * cells + 2 * rows * ring_cells(model, options);
    const uint64_t all = options->cells ? kv_cells(options->cells) : options->n_slots * cells;
    if (options->flash == FLASH_OFF)
        out->stage +=
            (2 * rows * h->n_head * cells + (uint64_t)h->n_head_kv * h->n_head_dim_v * all) *
            sizeof(float);
    if (h->indexer.n_head) /* scores, and masks of what was chosen */
        out->stage +=
            4 * rows * (h->summaries.is_there ? cells / SUMMARY_SHORT : cells) * sizeof(float);
    if (options->cells)
        out->stage += kv_type_bytes(options->kv_type, kv) * all;
    out->input = 0;
    out->output = rows * ((uint64_t)h->n_vocab + h->n_embd) * sizeof(float);
}
