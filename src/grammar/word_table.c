#include "grammar/word_table.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

static uint32_t word_table_hash(const uint32_t *words, size_t n)
{
    uint64_t hash = UINT64_C(0x9e3779b97f4a7c15) ^ n;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ words[i]) * UINT64_C(0xff51afd7ed558ccd);
        hash ^= hash >> 32;
    }
    return (uint32_t)hash;
}

static bool word_table_grow_slots(struct word_table *table)
{
    const uint32_t n_slots = table->n_slots ? table->n_slots * 2 : 64;
    uint32_t *slots = mem_new_array(n_slots, sizeof *slots);
    if (!slots)
        return false;
    for (uint32_t i = 0; i < table->count; i++) {
        uint32_t at = table->hashes[i] & (n_slots - 1);
        while (slots[at])
            at = (at + 1) & (n_slots - 1);
        slots[at] = i + 1;
    }
    mem_free(table->slots);
    table->slots = slots;
    table->n_slots = n_slots;
    return true;
}

static bool word_table_reserve(struct word_table *table, size_t n)
{
    if (table->count + 1 >= table->room) {
        const uint32_t room = table->room ? table->room * 2 : 32;
        uint64_t *starts = mem_resize(table->starts, (size_t)room + 1, sizeof *starts);
        if (!starts)
            return false;
        if (!table->starts)
            starts[0] = 0;
        table->starts = starts;
        uint32_t *hashes = mem_resize(table->hashes, room, sizeof *hashes);
        if (!hashes)
            return false;
        table->hashes = hashes;
        table->room = room;
    }
    if (table->n_words + n > table->words_room) {
        const size_t room = (table->n_words + n) * 2;
        uint32_t *words = mem_resize(table->words, room, sizeof *words);
        if (!words)
            return false;
        table->words = words;
        table->words_room = room;
    }
    return table->count * 2 < table->n_slots || word_table_grow_slots(table);
}

uint32_t word_table_add(struct word_table *table, const uint32_t *words, size_t n,
                        uint32_t count_max)
{
    if (!word_table_reserve(table, n))
        return WORD_TABLE_NONE;
    const uint32_t hash = word_table_hash(words, n);
    uint32_t at = hash & (table->n_slots - 1);
    for (; table->slots[at]; at = (at + 1) & (table->n_slots - 1)) {
        const uint32_t number = table->slots[at] - 1;
        const uint64_t start = table->starts[number];
        if (table->hashes[number] == hash && table->starts[number + 1] - start == n &&
            (n == 0 || memcmp(table->words + start, words, n * sizeof *words) == 0))
            return number;
    }
    if (table->count >= count_max)
        return WORD_TABLE_NONE;
    if (n)
        memcpy(table->words + table->n_words, words, n * sizeof *words);
    table->n_words += n;
    table->hashes[table->count] = hash;
    table->slots[at] = ++table->count;
    table->starts[table->count] = table->n_words;
    return table->count - 1;
}

const uint32_t *word_table_get(const struct word_table *table, uint32_t number, size_t *n)
{
    assert(number < table->count);
    const uint64_t start = table->starts[number];
    *n = (size_t)(table->starts[number + 1] - start);
    return table->words + start;
}

size_t word_table_bytes(const struct word_table *table)
{
    return table->words_room * sizeof *table->words + table->n_slots * sizeof *table->slots +
           table->room * (sizeof *table->starts + sizeof *table->hashes);
}

void word_table_clear(struct word_table *table)
{
    table->count = 0;
    table->n_words = 0;
    if (table->slots)
        memset(table->slots, 0, table->n_slots * sizeof *table->slots);
}

void word_table_deinit(struct word_table *table)
{
    mem_free(table->words);
    mem_free(table->starts);
    mem_free(table->hashes);
    mem_free(table->slots);
    *table = (struct word_table){0};
}
