/* The symbols of a word while its neighbours are being merged: an array that is also a linked
 * list in the order of the text. What a symbol's value means is the family's. Zeroed is empty. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct symbol {
    int32_t value;          /* BPE: number of its text; SPM: its token; negative: it has none */
    uint32_t size;          /* bytes; 0: merged into the symbol before */
    size_t start;           /* byte of the word */
    int32_t previous, next; /* -1: none */
};

struct symbol_list {
    struct symbol *symbols;
    size_t count, capacity;
};

/* Empties the list and makes room for `n` symbols. False: out of memory. */
bool symbol_list_reset(struct symbol_list *list, size_t n);

/* Appends the symbol of the next `size` bytes of the word; there is room for it. */
void symbol_list_append(struct symbol_list *list, int32_t value, size_t size);

/* Makes `left` and the symbol after it one, with the value given. There is one after it. */
void symbol_list_join(struct symbol_list *list, uint32_t left, int32_t value);

void symbol_list_deinit(struct symbol_list *list);
