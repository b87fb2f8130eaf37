/* /v1/batches: many requests of a file, worked on while nobody else asks for anything.
 *
 * A line of a batch is a request to this server over a pair of sockets, on behalf of the token that
 * made the batch. At most BATCH_LANES are under way. A line begins when no other request that
 * computes has been under way here for BATCH_QUIET_MS and no slot of a model is taken or wanted by
 * anybody else. As soon as another request comes, lines under way are given up; they run again
 * later. Lines of different batches take turns.
 *
 * What is kept, in STATE/api-batches: ID.json (the batch), ID.output and ID.errors (its answers so
 * far, a line each, which begin with the number of the request's line). When the batch ends they
 * become files. A restart goes on after the answers that are there. A lock keeps other servers of
 * the same state folder out. All on the loop's thread. */
#pragma once

#include "api/errors.h"
#include "api/file_store.h"

#include <stdbool.h>
#include <stdint.h>

struct api_server;
struct batches;
struct exchange;

enum {
    BATCHES_MAX = 64, /* that are kept; of those that have ended the oldest goes */
    BATCHES_OF_OWNER_MAX = 32,
    BATCHES_OPEN_MAX = 16, /* under way or waiting */
    BATCH_LINES_MAX = 10 * 1000,
    BATCH_LINE_BYTES = 256 * 1024,
    BATCH_ANSWER_BYTES = 4 * 1024 * 1024, /* of one line */
    BATCH_OUTPUT_BYTES = 64 * 1024 * 1024,
    BATCH_METADATA_BYTES = 4096,
    BATCH_WINDOW_S = 7 * 24 * 60 * 60, /* at most */
    BATCH_LANES = 4,
    BATCH_QUIET_MS = 500,
    BATCH_TRIES = 20, /* of a line that the server has no room for */
};

/* `state_folder` NULL or "": nothing is kept. NULL: no memory. What else fails is said later, by
 * batches_unavailable(). */
struct batches *batches_open(struct api_server *server, const char *state_folder);
void batches_stop(struct batches *batches);  /* gives up what is under way; begins nothing more */
void batches_close(struct batches *batches); /* while the loop still runs */
void batches_free(struct batches *batches);
/* Why there are none; NULL: there are. */
const char *batches_unavailable(const struct batches *batches);
struct file_store *batches_files(struct batches *batches);
bool batches_reads_file(const struct batches *batches, const char *id); /* one under way does */
/* Somebody asks for something that computes: batches make room at once. */
void batches_yield(struct batches *batches);

void batches_create_handle(struct exchange *exchange); /* POST /v1/batches */
void batches_list_handle(struct exchange *exchange);   /* GET /v1/batches */
void batches_get_handle(struct exchange *exchange);    /* GET /v1/batches/ID */
void batches_cancel_handle(struct exchange *exchange); /* POST /v1/batches/ID/cancel */
