#include "model/text_table.h"

#include "base/mem.h"
#include "base/random.h"

#include <assert.h>
#include <string.h>

static uint32_t hash_of(const char *text, size_t size)
{
    uint64_t hash = size;
    while (size >= 8) {
        uint64_t word;
        memcpy(&word, text, 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
        text += 8;
        size -= 8;
    }
    uint64_t rest = 0;
    memcpy(&rest, text, size);
    return (uint32_t)(random_mix(hash ^ rest) >> 32);
}

void text_table_deinit(struct text_table *table)
{
    if (!table)
        return;
    buffer_deinit(&table->bytes);
    mem_free(table->ends);
    mem_free(table->hashes);
    mem_free(table->slots);
    *table = (struct text_table){0};
}

const char *text_table_at(const struct text_table *table, uint32_t index, size_t *size)
{
    assert(index < table->count);
    size_t start = index ? table->ends[index - 1] : 0;
    *size = table->ends[index] - start;
    return table->bytes.data + start;
}

/* The slot that holds the text, or the free one where it would go. */
static uint32_t slot_of(const struct text_table *table, const char *text, size_t size, uint32_t hash)
{
    uint32_t slot = hash & (table->n_slots - 1);
    for (; table->slots[slot]; slot = (slot + 1) & (table->n_slots - 1)) {
        uint32_t index = table->slots[slot] - 1;
        if (table->hashes[index] != hash)
            continue;
        size_t there;
        const char *held = text_table_at(table, index, &there);
        if (there == size && memcmp(held, text, size) == 0)
            break;
    }
    return slot;
}

int32_t text_table_find(const struct text_table *table, const char *text, size_t size)
{
    if (!table->count)
        return TEXT_NONE;
    return (int32_t)table->slots[slot_of(table, text, size, hash_of(text, size))] - 1;
}

static bool grow_slots(struct text_table *table)
{
    uint32_t n_slots = table->n_slots ? table->n_slots * 2 : 64;
    uint32_t *slots = mem_new_array(n_slots, sizeof *slots);
    if (!slots)
        return false;
    for (uint32_t i = 0; i < table->count; i++) {
        uint32_t slot = table->hashes[i] & (n_slots - 1);
        while (slots[slot])
            slot = (slot + 1) & (n_slots - 1);
        slots[slot] = i + 1;
    }
    mem_free(table->slots);
    table->slots = slots;
    table->n_slots = n_slots;
    return true;
}

static bool grow_entries(struct text_table *table)
{
    uint32_t capacity = table->capacity ? table->capacity * 2 : 64;
    size_t *ends = mem_resize(table->ends, capacity, sizeof *ends);
    if (!ends)
        return false;
    table->ends = ends;
    uint32_t *hashes = mem_resize(table->hashes, capacity, sizeof *hashes);
    if (!hashes)
        return false;
    table->hashes = hashes;
    table->capacity = capacity;
    return true;
}

enum error_code text_table_add(struct text_table *table, const char *text, size_t size, uint32_t *index,
                               struct error *err)
{
    if (table->count >= INT32_MAX / 2)
        return error_set(err, ERROR_INVALID, "too many texts");
    bool room = table->count < table->capacity || grow_entries(table);
    room = room && (table->count < table->n_slots / 2 || grow_slots(table));
    if (!room)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    uint32_t hash = hash_of(text, size);
    uint32_t slot = slot_of(table, text, size, hash);
    if (table->slots[slot]) {
        *index = table->slots[slot] - 1;
        return ERROR_NONE;
    }
    buffer_append(&table->bytes, text, size);
    if (table->bytes.failed)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    *index = table->count++;
    table->ends[*index] = table->bytes.size;
    table->hashes[*index] = hash;
    table->slots[slot] = *index + 1;
    return ERROR_NONE;
}
