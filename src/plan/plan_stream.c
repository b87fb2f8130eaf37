#include "plan/plan_stream.h"

#include "base/mem.h"
#include "base/size_text.h"
#include "engine/weight_disk.h"
#include "engine/weight_window.h"
#include "model/model.h"
#include "placement/cost.h"
#include "placement/forecast.h"
#include "plan/plan_stream_place.h"

enum { SLOT_SLACK = 2 * WEIGHT_DISK_ALIGN };

enum error_code plan_stream_disk(const struct model *model, uint64_t *disk_bps, struct error *err)
{
    struct weight_disk disk;
    enum error_code code = weight_disk_open(&disk, model_file(model), err);
    if (!code)
        code = weight_disk_measure(&disk, gguf_file_size(model_file(model)) / 2, err);
    *disk_bps = weight_disk_bps(&disk);
    if (!code && !*disk_bps) /* the file is too small to measure */
        *disk_bps = PLAN_STREAM_DISK_BPS;
    weight_disk_close(&disk);
    return code;
}

static uint64_t stream_stored_bytes(const struct placement_layer *layer, uint32_t n_types)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n_types; i++)
        sum += layer->bytes[i];
    return sum;
}

/* All that is not weights of layers. */
static uint64_t fixed_bytes(const struct placement_problem *problem)
{
    const struct placement_model *model = &problem->model;
    uint64_t kv = 0;
    for (uint32_t i = 0; i < model->n_layers; i++)
        kv += placement_kv_bytes(&model->layers[i], &problem->demand) +
              placement_state_bytes(&model->layers[i], &problem->demand);
    return kv + model->compute_bytes + model->compute_input_bytes + model->compute_output_bytes;
}

static uint64_t ends_bytes(const struct placement_model *model)
{
    return stream_stored_bytes(&model->input, model->n_types) +
           stream_stored_bytes(&model->output, model->n_types);
}

/* As if the device had room for all. */
static double resident_speed(const struct placement_problem *problem, uint32_t device)
{
    struct placement_problem roomy = *problem;
    const struct placement all = {1, {{device, 0, problem->model.n_layers}}};
    struct placement_forecast forecast;
    roomy.demand.goal = PLACEMENT_LATENCY;
    roomy.demand.streams = 1;
    placement_forecast(&roomy, &all, &forecast);
    return forecast.decode_tokens_per_s;
}

static bool stream_window(const struct placement_model *model, uint64_t budget,
                          struct weight_window_plan *out)
{
    struct weight_window_layer *layers = mem_new_array(model->n_layers, sizeof *layers);
    uint64_t least;
    for (uint32_t i = 0; layers && i < model->n_layers; i++) {
        layers[i].resident = stream_stored_bytes(&model->layers[i], model->n_types);
        layers[i].slot = layers[i].resident + SLOT_SLACK;
    }
    const bool fits =
        layers && weight_window_plan_make(layers, model->n_layers, budget, out, &least);
    mem_free(layers);
    return fits;
}

static bool device_can(const struct placement_problem *problem, uint32_t device)
{
    const struct placement_device *of = &problem->devices[device];
    return !of->excluded && of->share > 0 && resident_speed(problem, device) > 0;
}

static uint64_t beyond(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static bool stream_on(const struct placement_problem *problem, uint32_t device,
                      uint64_t weights_max, uint64_t disk_bps, struct plan_stream *out)
{
    const struct placement_model *model = &problem->model;
    const struct placement_device *of = &problem->devices[device];
    const uint64_t ends = ends_bytes(model), fixed = fixed_bytes(problem);
    const uint64_t room = beyond(of->memory_free_bytes, of->reserve_bytes + fixed);
    struct weight_window_plan window;
    *out =
        (struct plan_stream){.device = device, .n_layers = model->n_layers, .disk_bps = disk_bps};
    out->weights_max = weights_max && weights_max < room ? weights_max : room;
    if (!device_can(problem, device) || out->weights_max <= ends ||
        !stream_window(model, out->weights_max - ends, &window))
        return false;
    out->n_streamed = window.n_streamed;
    uint64_t all = ends;
    for (uint32_t i = 0; i < model->n_layers; i++) {
        const uint64_t bytes = stream_stored_bytes(&model->layers[i], model->n_types);
        all += bytes;
        out->streamed_bytes += window.is_streamed[i] ? bytes : 0;
    }
    out->missing_bytes = beyond(all, out->weights_max);
    out->resident_tokens_per_s = resident_speed(problem, device);
    const double from_disk =
        out->streamed_bytes ? (double)disk_bps / (double)out->streamed_bytes : 1e9;
    out->decode_tokens_per_s =
        from_disk < out->resident_tokens_per_s ? from_disk : out->resident_tokens_per_s;
    return true;
}

bool plan_stream_choose(const struct placement_problem *problem, uint64_t weights_max,
                        uint64_t disk_bps, struct plan_stream *out)
{
    struct plan_stream one;
    *out = (struct plan_stream){0};
    for (uint32_t i = 0; i < problem->n_devices; i++) {
        if (stream_on(problem, i, weights_max, disk_bps, &one) &&
            one.decode_tokens_per_s > out->decode_tokens_per_s)
            *out = one;
    }
    return out->decode_tokens_per_s > 0;
}

static int decimals_of(double speed)
{
    return speed < 1 ? 2 : speed < 10 ? 1 : 0;
}

void plan_stream_text(const struct plan_stream *stream, const char *device, struct buffer *out)
{
    buffer_printf(out,
                  "%.*f tok/s with %u of %u layers streamed from this disk (%.1f GB/s); "
                  "%.*f with %s more on %s",
                  decimals_of(stream->decode_tokens_per_s), stream->decode_tokens_per_s,
                  stream->n_streamed, stream->n_layers, (double)stream->disk_bps * 1e-9,
                  decimals_of(stream->resident_tokens_per_s), stream->resident_tokens_per_s,
                  size_text(stream->missing_bytes).text, device);
}
