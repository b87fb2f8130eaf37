/* Times and rates as the words of `medley token` have them. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* "90s", "30m", "12h", "30d": 1 s to 100 years. */
bool token_time_parse(const char *text, uint64_t *seconds);
/* "60/min" or "60": 1 to 1,000,000. */
bool token_rate_parse(const char *text, uint64_t *per_min);
