/* What nodes say to each other when a new placement takes over the KV caches of an old one, as
 * bytes. Pure.
 *
 *   OFFER  old driver's node -> all nodes of both: which slots hold which tokens, on every old
 *          stage
 *   ROWS   who has a layer -> who has it next: cells of one layer of a slot, exactly as the cache
 *          holds them
 *   TAKEN  back: one ROWS has been taken; there may be CACHE_WINDOW unanswered ones
 *   DONE   who has all rows of its layers -> new driver's node; or that it will not have them
 *
 * Little-endian. A header of CACHE_HEADER_BYTES, then the kind's fields; the rows' bytes begin at a
 * multiple of 8. The reader trusts nothing: what it gives out lies within the limits and within the
 * message. Whether slots, layers and lengths are those of a placement is its caller's to check. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"
#include "base/limits.h"
#include "engine/stage.h"

#include <stddef.h>

enum { CACHE_HEADER_BYTES = 32, CACHE_ROWS_BYTES = 56, CACHE_WINDOW = 4 };

enum cache_kind { CACHE_OFFER = 1, CACHE_ROWS, CACHE_TAKEN, CACHE_DONE };

struct cache_route {
    uint64_t instance;             /* as in wire.h */
    uint64_t from_epoch, to_epoch; /* the placements */
};

struct cache_offer {
    uint32_t patience_ms; /* after that computing anew is quicker */
    uint32_t n_slots;
    struct {
        uint64_t cache_key; /* request.h */
        uint32_t slot, n_tokens;
        const unsigned char *tokens; /* 4 bytes each */
    } slots[LIMIT_SEQUENCES];        /* each once */
};

struct cache_message {
    struct cache_route route;
    enum cache_kind kind;
    struct cache_offer offer;
    struct {
        struct kv_run run;
        uint64_t row_bytes; /* of one cell */
        const void *bytes;  /* run.n_rows x row_bytes */
    } rows;
    bool has_all; /* DONE */
};

void cache_write_offer(const struct cache_route *route, const struct cache_offer *offer,
                       struct buffer *out);
/* The beginning; the caller appends the rows. The buffer is empty before. */
void cache_write_rows(const struct cache_route *route, const struct kv_run *run, uint64_t row_bytes,
                      struct buffer *out);
void cache_write_taken(const struct cache_route *route, struct buffer *out);
void cache_write_done(const struct cache_route *route, bool has_all, struct buffer *out);

/* Points into `bytes`. ERROR_INVALID: refused; its sender breaks the rules. */
enum error_code cache_read(const void *bytes, size_t size, struct cache_message *out,
                           struct error *err);
