/* OpenAI's Responses over the one generator: /v1/responses. Private to the api room.
 *
 * An answer that may be gone on with (`store`, the default) is kept in memory, as the messages that
 * led to it: the last RESPONSES_KEPT of all clients, in RESPONSES_BYTES at most, for whoever shows
 * the same token. A node that is asked for one that it has not says 404. */
#pragma once

#include "api/dialect.h"

#include <pthread.h>

enum { RESPONSES_KEPT = 256, RESPONSES_BYTES = 16 * 1024 * 1024 };

struct kept_response {
    char id[48];
    uint64_t grant; /* of the token that it was made for; 0: none */
    struct buffer messages;
};

struct response_store {
    pthread_mutex_t lock;
    struct kept_response kept[RESPONSES_KEPT];
    uint32_t first, n_kept; /* a ring, oldest first */
    size_t n_bytes;
};
struct response_store *response_store_new(void); /* NULL: no memory */
void response_store_free(struct response_store *store);
/* Keeps a copy, and forgets the oldest where there is no room. What is too large is not kept. */
void response_store_keep(struct response_store *store, const char *id, uint64_t grant,
                         const struct buffer *messages);
/* Appends the messages; any thread. False: there is none of that id for that token. */
bool response_store_find(struct response_store *store, const char *id, uint64_t grant,
                         struct buffer *out);

/* The body as a chat's. completion->history becomes its messages, where the answer may be gone on
 * with. */
bool responses_read(struct completion *completion, const char *body, size_t size,
                    struct buffer *out, struct api_error *err);
