/* Keeping house among what Medley itself fetched (places `pulled` and `shelf`): removing, pinning,
 * and making room. Nothing else is ever touched. */
#pragma once

#include "library/library.h"

/* Why it must stay; NULL: it may go. Pinned, named by the node's list of files, or in use (on the
 * shelf: locked by the process that has it open). */
const char *library_keeps(const struct library_model *model);

/* Marks those that are to go, in `chosen` (one for each model of the library), and says how many
 * bytes that frees. Of what may go: what is broken; what was not used for `unused_ns`; and, where
 * space_bytes is above 0, those longest unused until what is left takes no more than that. What is
 * being fetched counts as any other by when it was written last. */
struct library_wish {
    uint64_t now_ns, unused_ns; /* unused_ns 0: however recently it was used, it stays */
    uint64_t space_bytes;
};
uint64_t library_choose_to_free(const struct library *library, const struct library_wish *wish,
                                bool *chosen);

/* ERROR_INVALID: it is not Medley's to remove; ERROR_BUSY: it must stay, with the reason. Folders
 * of STATE/pulled that become empty go, too. */
enum error_code library_remove(const struct library_model *model, struct error *err);

/* ERROR_INVALID: it is not Medley's. */
enum error_code library_pin(const struct library_model *model, bool pinned, struct error *err);
