/* Records about KV caches in the rings between a node and a device's process (children.h), as
 * bytes. Pure.
 *
 *   READ    cells of one layer of a slot: a kv_run's fields. The answer brings them
 *   WRITE   ROWS of cache_wire.h
 *   SETTLE  OFFER of cache_wire.h: which slots hold which tokens from now on
 *   answer  that it was done, with the rows of a READ; or why it was not
 *
 * Little-endian, each behind a head of CHILD_CACHE_HEAD_BYTES, so that rows begin at a multiple of
 * 8. The reader trusts nothing: what it gives out lies within the limits and within the record.
 * Whether stage, layers, slots and lengths are those of its lane is its caller's to check. */
#pragma once

#include "pipeline/cache_wire.h"

enum { CHILD_CACHE_HEAD_BYTES = 16, CHILD_CACHE_NUMBER_AT = 8 };

enum child_cache_kind { CHILD_CACHE_READ = 1, CHILD_CACHE_WRITE, CHILD_CACHE_SETTLE };

struct child_cache {
    enum child_cache_kind kind;
    uint32_t stage;
    uint64_t number;              /* that its answer has, too */
    struct kv_run run;            /* READ */
    struct cache_message message; /* WRITE, SETTLE */
};

/* The head; what follows is the caller's to append. */
void child_cache_write_head(enum child_cache_kind kind, uint32_t stage, uint64_t number,
                            struct buffer *out);
void child_cache_write_run(const struct kv_run *run, struct buffer *out);
/* Points into `bytes`. ERROR_INVALID: not such a record. */
enum error_code child_cache_read(const void *bytes, size_t size, struct child_cache *out,
                                 struct error *err);

struct child_answer {
    uint64_t number;
    enum error_code code;
    const void *bytes; /* rows; or, when there is a code, a text without an end */
    size_t size;
};

void child_answer_write_head(uint64_t number, enum error_code code, struct buffer *out);
enum error_code child_answer_read(const void *bytes, size_t size, struct child_answer *out,
                                  struct error *err);
