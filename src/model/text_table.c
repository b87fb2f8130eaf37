#include "model/text_table.h"

#include "base/mem.h"
#include "base/random.h"

#include <assert.h>
#include <string.h>

enum { TEXTS_MAX = 1 << 30 }; /* twice as many slots still count in 32 bits */

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
static struct text_slot *text_table_slot_of(const struct text_table *table, const char *text,
                                            size_t size, uint32_t hash)
{
    uint32_t at = hash & (table->n_slots - 1);
    for (; table->slots[at].number; at = (at + 1) & (table->n_slots - 1)) {
        if (table->slots[at].hash != hash)
            continue;
        size_t there;
        const char *held = text_table_at(table, table->slots[at].number - 1, &there);
        if (there == size && memcmp(held, text, size) == 0)
            break;
    }
    return &table->slots[at];
}

int32_t text_table_find(const struct text_table *table, const char *text, size_t size)
{
    if (!table->count)
        return TEXT_NONE;
    return (int32_t)text_table_slot_of(table, text, size, hash_of(text, size))->number - 1;
}

static bool grow_slots(struct text_table *table, uint32_t n_slots)
{
    struct text_slot *slots = mem_new_array(n_slots, sizeof *slots);
    if (!slots)
        return false;
    for (uint32_t i = 0; i < table->n_slots; i++) {
        if (!table->slots[i].number)
            continue;
        uint32_t at = table->slots[i].hash & (n_slots - 1);
        while (slots[at].number)
            at = (at + 1) & (n_slots - 1);
        slots[at] = table->slots[i];
    }
    mem_free(table->slots);
    table->slots = slots;
    table->n_slots = n_slots;
    return true;
}

static bool grow_entries(struct text_table *table, uint32_t capacity)
{
    size_t *ends = mem_resize(table->ends, capacity, sizeof *ends);
    if (!ends)
        return false;
    table->ends = ends;
    table->capacity = capacity;
    return true;
}

/* Room for `count` texts; at most half of the slots are taken. */
static bool text_table_ensure(struct text_table *table, uint32_t count)
{
    uint32_t n_slots = table->n_slots ? table->n_slots : 64;
    while (n_slots / 2 < count)
        n_slots *= 2;
    uint32_t capacity = table->capacity ? table->capacity : 64;
    while (capacity < count)
        capacity *= 2;
    return (capacity == table->capacity || grow_entries(table, capacity)) &&
           (n_slots == table->n_slots || grow_slots(table, n_slots));
}

enum error_code text_table_reserve(struct text_table *table, uint32_t count, struct error *err)
{
    if (count > TEXTS_MAX)
        return error_set(err, ERROR_INVALID, "too many texts");
    return text_table_ensure(table, count) ? ERROR_NONE
                                           : error_set(err, ERROR_NO_MEMORY, "out of memory");
}

enum error_code text_table_add(struct text_table *table, const char *text, size_t size,
                               uint32_t *index, struct error *err)
{
    enum error_code code = text_table_reserve(table, table->count + 1, err);
    if (code)
        return code;
    uint32_t hash = hash_of(text, size);
    struct text_slot *slot = text_table_slot_of(table, text, size, hash);
    if (slot->number) {
        *index = slot->number - 1;
        return ERROR_NONE;
    }
    buffer_append(&table->bytes, text, size);
    if (table->bytes.failed)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    *index = table->count++;
    table->ends[*index] = table->bytes.size;
    *slot = (struct text_slot){.hash = hash, .number = *index + 1};
    return ERROR_NONE;
}
