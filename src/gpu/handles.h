/* The buffers of one device, named by handles that cannot be forged by accident.
 *
 * A handle is owner | generation | slot. The owner is a number that no two devices of this
 * process share, the generation counts how often the slot was given out; so a stale handle,
 * a handle of another device and a double free are all found out, and zero is never valid.
 * Not thread-safe: device.c holds the device's buffer lock. A zeroed table needs only its
 * owner set. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct handle_slot {
    void *memory; /* the implementation's; NULL for a buffer of zero bytes */
    uint64_t size;
    uint32_t generation;
    uint32_t next_free; /* slot + 1 while it is free */
    bool used;
};

struct handle_table {
    struct handle_slot *slots;
    uint32_t n_slots;
    uint32_t capacity;
    uint32_t first_free; /* slot + 1; 0: none */
    uint32_t owner;
};

enum { HANDLE_SLOT_BITS = 20, HANDLE_GENERATION_BITS = 24, HANDLE_OWNER_BITS = 20 };

uint32_t handle_owner_next(void); /* any thread; never 0 */
uint64_t handle_add(struct handle_table *table, void *memory,
                    uint64_t size); /* 0: no memory, or the table is full */
struct handle_slot *handle_find(const struct handle_table *table,
                                uint64_t handle); /* NULL: not a live handle of it */
bool handle_is_foreign(const struct handle_table *table, uint64_t handle); /* another device's */
void handle_remove(struct handle_table *table, uint64_t handle);           /* must be live */
void handle_table_deinit(struct handle_table *table); /* the memories are the caller's */
