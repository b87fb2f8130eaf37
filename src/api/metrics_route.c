/* GET /metrics: what the API has counted, what its drivers do, and what its owner adds. */
#include "api/exchange.h"
#include "api/internal.h"
#include "api/preparer.h"
#include "api/traces.h"
#include "request/driver_metrics.h"
#include "request/generator.h"

/* Of models that run in this process: none in a node, which shows its drivers itself. */
struct metrics_drivers {
    struct driver_figures drivers[METRICS_MODELS];
    uint32_t n;
};

static void metrics_add_driver(void *arg, const struct api_listed *model)
{
    struct metrics_drivers *drivers = arg;
    if (!model->generator || drivers->n == METRICS_MODELS)
        return;
    drivers->drivers[drivers->n++] =
        (struct driver_figures){.model = model->id, .stats = generator_stats(model->generator)};
}

static void metrics_write_traces(struct post_stats stats, struct metrics_page *page)
{
    metrics_put_count(page, METRIC_TRACES, METRICS_LABELS("sent"), stats.sent);
    metrics_put_count(page, METRIC_TRACES, METRICS_LABELS("dropped"), stats.dropped);
    metrics_put_count(page, METRIC_TRACES, METRICS_LABELS("given_up"), stats.given_up);
    metrics_put_count(page, METRIC_TRACES_QUEUED, NULL, stats.queued);
}

void metrics_handle(struct exchange *exchange)
{
    const struct api_server *server = exchange_server(exchange);
    struct metrics_drivers drivers = {0};
    struct buffer body = {0};
    struct metrics_page page = {.out = &body};
    const struct metrics_gauges gauges = {
        .memory_bytes = memory_total_used(&server->memory),
        .memory_bytes_peak = (uint64_t)atomic_load(&server->memory.peak),
        .waiting = preparer_waiting(server->preparer),
    };
    metrics_write(&server->metrics, &gauges, &page);
    server->models.list(server->models.self, metrics_add_driver, &drivers);
    driver_metrics_write(drivers.drivers, drivers.n, &page);
    metrics_write_traces(traces_stats(server->traces), &page);
    if (server->more_metrics.write)
        server->more_metrics.write(server->more_metrics.self, &page);
    exchange_answer(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", &body);
}
