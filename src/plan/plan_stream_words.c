/* What is said of a placement of which a part is read from disks. */
#include "plan/plan_stream_place.h"

#include "base/size_text.h"

#include <string.h>

static int speed_decimals(double speed)
{
    return speed < 1 ? 2 : speed < 10 ? 1 : 0;
}

static const struct placement_device *stream_say_device(const struct placement_problem *problem,
                                                        const struct plan_stream_placement *stream,
                                                        uint32_t stage)
{
    return &problem->devices[stream->placement.stages[stage].device];
}

/* Stages before `end` that stream on the node of that one, which may be among them. */
static uint32_t stream_say_on_node(const struct placement_problem *problem,
                                   const struct plan_stream_placement *stream, uint32_t stage,
                                   uint32_t end)
{
    const char *node = stream_say_device(problem, stream, stage)->node;
    uint32_t n = 0;
    for (uint32_t i = 0; i < end; i++)
        n += stream->stages[i].n_streamed &&
             !strcmp(stream_say_device(problem, stream, i)->node, node);
    return n;
}

/* "tower and attic" */
static void stream_say_nodes(const struct placement_problem *problem,
                             const struct plan_stream_placement *stream, struct buffer *out)
{
    const char *between = "";
    for (uint32_t i = 0; i < stream->placement.n_stages; i++) {
        const struct placement_device *device = stream_say_device(problem, stream, i);
        if (!stream->stages[i].n_streamed || stream_say_on_node(problem, stream, i, i))
            continue;
        buffer_printf(out, "%s%s", between, device->node[0] ? device->node : device->id);
        between = " and ";
    }
}

/* "1.2 GiB more on tower"; "… on tower gpu0", where several of its devices stream */
static void stream_say_missing(const struct placement_problem *problem,
                               const struct plan_stream_placement *stream, struct buffer *out)
{
    const uint32_t n_stages = stream->placement.n_stages;
    const char *between = "";
    for (uint32_t i = 0; i < n_stages; i++) {
        const struct placement_device *device = stream_say_device(problem, stream, i);
        if (!stream->stages[i].n_streamed)
            continue;
        const bool is_one = stream_say_on_node(problem, stream, i, n_stages) == 1;
        buffer_printf(out, "%s%s more on %s", between,
                      size_text(stream->stages[i].missing_bytes).text, device->node);
        if (!device->node[0] || !is_one)
            buffer_printf(out, "%s%s", device->node[0] ? " " : "", device->id);
        between = " and ";
    }
}

void plan_stream_place_text(const struct placement_problem *problem,
                            const struct plan_stream_placement *stream, struct buffer *out)
{
    const double so = stream->decode_tokens_per_s, all = stream->resident_tokens_per_s;
    buffer_printf(out, "%.*f tok/s with %u of %u layers from the disk of ", speed_decimals(so), so,
                  stream->n_streamed, problem->model.n_layers);
    stream_say_nodes(problem, stream, out);
    buffer_printf(out, "; %.*f with ", speed_decimals(all), all);
    stream_say_missing(problem, stream, out);
}

void plan_stream_here_text(const struct placement_problem *problem,
                           const struct plan_stream_placement *stream, uint64_t disk_bps,
                           struct buffer *out)
{
    const double so = stream->decode_tokens_per_s, all = stream->resident_tokens_per_s;
    const char *between = ":";
    buffer_printf(out, "%.*f tok/s with %u of %u layers streamed from this disk (%.1f GB/s)",
                  speed_decimals(so), so, stream->n_streamed, problem->model.n_layers,
                  (double)disk_bps * 1e-9);
    for (uint32_t i = 0; i < stream->placement.n_stages; i++) {
        if (!stream->stages[i].n_streamed)
            continue;
        buffer_printf(out, "%s %u on %s", between, stream->stages[i].n_streamed,
                      problem->devices[stream->placement.stages[i].device].id);
        between = ",";
    }
    buffer_printf(out, "; %.*f with ", speed_decimals(all), all);
    stream_say_missing(problem, stream, out);
}
