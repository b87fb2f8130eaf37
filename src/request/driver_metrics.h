/* What drivers do, as /metrics shows it: `medley serve` shows its own, a node those that it has. */
#pragma once

#include "metrics/page.h"
#include "request/request.h"

struct driver_figures {
    const char *model;
    struct driver_stats stats;
};
void driver_metrics_write(const struct driver_figures *drivers, uint32_t n,
                          struct metrics_page *page);
