#include "gpu/handles.h"

#include "base/mem.h"

#include <assert.h>
#include <stdatomic.h>

#define MASK(bits) ((UINT64_C(1) << (bits)) - 1)

static uint32_t handles_slot_of(uint64_t handle)
{
    return (uint32_t)(handle & MASK(HANDLE_SLOT_BITS));
}

static uint32_t generation_of(uint64_t handle)
{
    return (uint32_t)(handle >> HANDLE_SLOT_BITS & MASK(HANDLE_GENERATION_BITS));
}

static uint32_t owner_of(uint64_t handle)
{
    return (uint32_t)(handle >> (HANDLE_SLOT_BITS + HANDLE_GENERATION_BITS));
}

uint32_t handle_owner_next(void)
{
    static atomic_uint count;
    uint32_t owner;
    do {
        owner = atomic_fetch_add(&count, 1) & (uint32_t)MASK(HANDLE_OWNER_BITS);
    } while (owner == 0);
    return owner;
}

static bool handles_grow(struct handle_table *table)
{
    if (table->capacity > MASK(HANDLE_SLOT_BITS))
        return false;
    uint32_t capacity = table->capacity ? table->capacity * 2 : 16;
    struct handle_slot *slots = mem_resize(table->slots, capacity, sizeof *slots);
    if (!slots)
        return false;
    table->slots = slots;
    table->capacity = capacity;
    return true;
}

uint64_t handle_add(struct handle_table *table, void *memory, uint64_t size)
{
    assert(table->owner);
    uint32_t slot;
    if (table->first_free) {
        slot = table->first_free - 1;
        table->first_free = table->slots[slot].next_free;
    } else {
        if (table->n_slots == table->capacity && !handles_grow(table))
            return 0;
        slot = table->n_slots++;
        table->slots[slot] = (struct handle_slot){0};
    }
    struct handle_slot *entry = &table->slots[slot];
    entry->generation = (entry->generation + 1) & (uint32_t)MASK(HANDLE_GENERATION_BITS);
    entry->memory = memory;
    entry->size = size;
    entry->next_free = 0;
    entry->used = true;
    return ((uint64_t)table->owner << (HANDLE_SLOT_BITS + HANDLE_GENERATION_BITS)) |
           ((uint64_t)entry->generation << HANDLE_SLOT_BITS) | slot;
}

struct handle_slot *handle_find(const struct handle_table *table, uint64_t handle)
{
    uint32_t slot = handles_slot_of(handle);
    if (owner_of(handle) != table->owner || slot >= table->n_slots)
        return NULL;
    struct handle_slot *entry = &table->slots[slot];
    return entry->used && entry->generation == generation_of(handle) ? entry : NULL;
}

bool handle_is_foreign(const struct handle_table *table, uint64_t handle)
{
    return handle && owner_of(handle) != table->owner;
}

void handle_remove(struct handle_table *table, uint64_t handle)
{
    struct handle_slot *entry = handle_find(table, handle);
    assert(entry);
    entry->used = false;
    entry->memory = NULL;
    entry->next_free = table->first_free;
    table->first_free = handles_slot_of(handle) + 1;
}

void handle_table_deinit(struct handle_table *table)
{
    mem_free(table->slots);
    *table = (struct handle_table){0};
}
