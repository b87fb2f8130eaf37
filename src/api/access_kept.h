/* What tokens have used today, kept in STATE/token-usage, so that a restart gives nobody another
 * day's tokens. A line for each token: its id, the day (since 1970, UTC), its tokens.
 *
 * Written when it has changed, at most every KEPT_MS and at the end. It is not synced: a kill loses
 * a few seconds of counting, a power cut maybe more, and neither is worth a wait of the loop's.
 * A file that is damaged counts as far as it can be read. On the loop's thread. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct access;

enum { ACCESS_KEPT_MS = 5000 };

/* Zeroed: nothing is kept. */
struct access_kept {
    char path[PATH_MAX], beside[PATH_MAX];
    uint64_t written_ms, version;
};

/* Reads what there is. No folder (NULL or ""): nothing is kept. */
void access_kept_open(struct access_kept *kept, const char *state_folder, struct access *access,
                      uint64_t wall_ms);
/* True: something is left to be written, later. */
bool access_kept_step(struct access_kept *kept, struct access *access, uint64_t wall_ms);
/* The same now. */
void access_kept_flush(struct access_kept *kept, struct access *access, uint64_t wall_ms);
