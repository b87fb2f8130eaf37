/* FNV-1a of 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv): names a text or notices an accident.
 * Not for tables that strangers fill, nor against forgery. Begins with FNV_BASIS; goes on with what
 * it gave. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FNV_BASIS UINT64_C(0xcbf29ce484222325)

static inline uint64_t fnv(uint64_t hash, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static inline uint64_t fnv_text(uint64_t hash, const char *text)
{
    return fnv(hash, text, strlen(text));
}
