/* What people and programs see while the cluster fetches a model together: a line with what each
 * machine has, every ten seconds where stderr is no terminal; or a line of JSON for each look. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <yyjson.h>

struct gather_bar { /* a zeroed one is for people */
    bool json;      /* the node's lines to stdout, with "event":"gathering" */
    bool is_shown;
    uint64_t said_ns;
};

/* root: a line of the node that has "gathering". */
enum error_code gather_bar_show(struct gather_bar *bar, yyjson_val *root, struct error *err);
void gather_bar_end(struct gather_bar *bar); /* the line goes away */
