/* Sequences of 32-bit words, each kept once and named by a number from 0 on: what makes states,
 * stacks and sets comparable by one integer. A zeroed table is empty and valid. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WORD_TABLE_NONE = UINT32_MAX };

struct word_table {
    uint32_t *words;
    size_t n_words, words_room;
    uint64_t *starts; /* [count + 1] where a sequence begins in `words` */
    uint32_t *hashes; /* [count] */
    uint32_t count, room;
    uint32_t *slots; /* number + 1, 0: free */
    uint32_t n_slots;
};

/* The number of the sequence, which is added where it is new. WORD_TABLE_NONE: no memory, or
 * `count` would exceed count_max. */
uint32_t word_table_add(struct word_table *table, const uint32_t *words, size_t n,
                        uint32_t count_max);
/* Valid until something is added. */
const uint32_t *word_table_get(const struct word_table *table, uint32_t number, size_t *n);
size_t word_table_bytes(const struct word_table *table);
void word_table_clear(struct word_table *table); /* empty, memory kept */
void word_table_deinit(struct word_table *table);
