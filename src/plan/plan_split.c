#include "plan/plan.h"

#include "base/limits.h"

#include <errno.h>
#include <stdlib.h>

static enum error_code read_counts(const char *split, uint32_t *counts, uint32_t *n_counts,
                                   struct error *err)
{
    const char *at = split;
    for (*n_counts = 0;; at++) {
        char *end = NULL;
        errno = 0;
        unsigned long value = *at >= '0' && *at <= '9' ? strtoul(at, &end, 10) : 0;
        if (!end || errno || value == 0 || value > LIMIT_LAYERS || (*end && *end != ','))
            return error_set(err, ERROR_INVALID,
                             "split '%s': part %u is not a number of layers from 1 to %d", split,
                             *n_counts + 1, LIMIT_LAYERS);
        if (*n_counts == LIMIT_STAGES)
            return error_set(err, ERROR_INVALID, "split '%s': more than %d parts", split,
                             LIMIT_STAGES);
        counts[(*n_counts)++] = (uint32_t)value;
        if (!*end)
            return ERROR_NONE;
        at = end;
    }
}

enum error_code plan_split_read(const char *split, uint32_t n_layers, uint32_t *counts,
                                uint32_t *n_counts, struct error *err)
{
    uint32_t sum = 0;
    enum error_code code = read_counts(split, counts, n_counts, err);
    if (code)
        return code;
    for (uint32_t i = 0; i < *n_counts; i++)
        sum += counts[i];
    if (sum != n_layers)
        return error_set(err, ERROR_INVALID, "split '%s' adds up to %u layers; the model has %u",
                         split, sum, n_layers);
    return ERROR_NONE;
}
