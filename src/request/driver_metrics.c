#include "request/driver_metrics.h"

static uint64_t driver_figure(const struct driver_stats *stats, enum metric metric)
{
    switch ((int)metric) {
    case METRIC_SLOTS:
        return stats->slots_total;
    case METRIC_SLOTS_BUSY:
        return stats->slots_busy;
    case METRIC_QUEUE_LENGTH:
        return stats->queued;
    case METRIC_CELLS_USED:
        return stats->cells_total - stats->cells_free;
    case METRIC_CELLS_FREE:
        return stats->cells_free;
    case METRIC_CELLS_SHARED:
        return stats->cells_shared;
    case METRIC_PARKED:
        return stats->parked;
    case METRIC_PARKED_TOTAL:
        return stats->parked_total;
    case METRIC_DRIVER_REQUESTS:
        return stats->requests_total;
    case METRIC_DRIVER_STEPS:
        return stats->steps_total;
    case METRIC_DRAFTED:
        return stats->drafted_tokens_total;
    case METRIC_ACCEPTED:
        return stats->accepted_tokens_total;
    default:
        return stats->rows_total;
    }
}

/* Of these there is nothing to say where each sequence has cells of its own. */
static bool driver_metric_is_of_cells(enum metric metric)
{
    return metric == METRIC_CELLS_USED || metric == METRIC_CELLS_FREE ||
           metric == METRIC_CELLS_SHARED || metric == METRIC_PARKED ||
           metric == METRIC_PARKED_TOTAL;
}

void driver_metrics_write(const struct driver_figures *drivers, uint32_t n,
                          struct metrics_page *page)
{
    static const enum metric metrics[] = {
        METRIC_SLOTS,           METRIC_SLOTS_BUSY,   METRIC_QUEUE_LENGTH, METRIC_CELLS_USED,
        METRIC_CELLS_FREE,      METRIC_CELLS_SHARED, METRIC_PARKED,       METRIC_PARKED_TOTAL,
        METRIC_DRIVER_REQUESTS, METRIC_DRIVER_STEPS, METRIC_DRIVER_ROWS,  METRIC_DRAFTED,
        METRIC_ACCEPTED};
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++) {
        for (uint32_t at = 0; at < n; at++) {
            if (drivers[at].stats.cells_total || !driver_metric_is_of_cells(metrics[i]))
                metrics_put_count(page, metrics[i], METRICS_LABELS(drivers[at].model),
                                  driver_figure(&drivers[at].stats, metrics[i]));
        }
    }
}
