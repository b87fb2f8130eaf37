/* Words and numbers that a report's texts share. Private to it. */
#pragma once

#include "base/size_text.h"
#include "report/report.h"

struct report_words {
    char text[96];
};
struct report_words report_rate_words(double tokens_per_s); /* "41.2 tok/s" */

/* How a token gets from one device to another: "ethernet 2.5 Gb/s", "memory copy", "wifi 300 Mb/s,
 * through nuc". */
struct report_words report_link_words(const struct report *report, uint32_t from, uint32_t to);
bool report_link_assumed(const struct report *report, uint32_t from, uint32_t to);

/* "tower/cuda0's memory bandwidth", "the link from … to …". */
struct report_words report_bottleneck_words(const struct report *report);
/* Why the device is not used: "would cost 61 ms per token for 2 layers". "" when it is used or was
 * not asked. */
struct report_words report_reason_words(const struct report *report, uint32_t device);
