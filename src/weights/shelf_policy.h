/* Which models make room for what is to be fetched. Pure.
 *
 * The least recently used go first, never one that is in use; and none goes where all of them would
 * not be enough. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct shelf_entry {
    uint64_t bytes; /* on the disk */
    uint64_t used_ns;
    bool in_use;
    bool evict; /* the answer */
};

struct shelf_room {
    uint64_t need_bytes;
    uint64_t limit_bytes; /* of all entries together; 0: none */
    uint64_t free_bytes;  /* on the disk */
    uint64_t spare_bytes; /* that must stay free there */
};

/* ERROR_BUSY: the limit, ERROR_IO: the disk; err has what is needed, what there is, and what is in
 * use. Then no entry is to be evicted. */
enum error_code shelf_policy_choose(const struct shelf_room *room, struct shelf_entry *entries,
                                    uint32_t n, struct error *err);

enum { SHELF_BYTES_TEXT = 32 };
const char *shelf_bytes_text(uint64_t bytes, char out[SHELF_BYTES_TEXT]); /* "5.2 GiB" */
