/* A set of byte strings, each with a number: 0, 1, 2 … in the order in which they were added.
 * A zeroed table is empty. Texts live until text_table_deinit(), but move when one is added. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum { TEXT_NONE = -1 };

struct text_table {
    struct buffer bytes; /* all texts, one after another */
    size_t *ends;        /* of text i in `bytes`; it starts where text i-1 ends */
    struct text_slot {
        uint32_t hash, number; /* number + 1; 0: free */
    } *slots; /* open addressing, a power of two of them; the hash here saves a look at the text */
    uint32_t count, capacity;
    uint32_t n_slots;
};

void text_table_deinit(struct text_table *table);
const char *text_table_at(const struct text_table *table, uint32_t index, size_t *size);
int32_t text_table_find(const struct text_table *table, const char *text,
                        size_t size); /* TEXT_NONE */
/* Room for that many texts at once, so that adding them does not move what is there. */
enum error_code text_table_reserve(struct text_table *table, uint32_t count, struct error *err);
/* *index gets the number of the text, new or not; it is new when table->count grew. */
enum error_code text_table_add(struct text_table *table, const char *text, size_t size,
                               uint32_t *index, struct error *err);
