/* What people and programs see of a pull: a bar on the terminal with speed and time left, a line
 * every ten seconds where stderr is no terminal, or a line of JSON for each look. */
#pragma once

#include "hub/pull.h"

#include <stdbool.h>
#include <stdint.h>

struct pull_bar { /* a zeroed one is for people */
    bool json;    /* {"event":"progress",…} to stdout */
    bool is_shown;
    uint64_t said_ns;
};

struct pull_watch pull_bar_watch(struct pull_bar *bar);
/* The bar goes away. */
void pull_bar_end(struct pull_bar *bar);
