/* What works on batches: the list of them, and which line is next. Private to the api room. */
#pragma once

#include "api/batch.h"

#include <uv.h>

struct batches {
    struct api_server *server;
    uv_timer_t *timer;        /* freed by libuv's callback */
    char why[ERROR_TEXT_MAX]; /* there are none; "": there are */
    char folder[PATH_MAX];
    int lock_fd;
    struct file_store files;
    struct api_batch *batches[BATCHES_MAX]; /* the oldest first */
    uint32_t n;
    uint32_t turn; /* whose line is next */
    struct batch_lane lanes[BATCH_LANES];
    uint64_t busy_ms; /* when somebody else was last seen to ask for something */
    bool is_stopping;
};

/* What is due: expires, begins lines, ends batches. */
void batches_step(struct batches *batches);
/* A batch whose lines were read is in the list. False: `err` says what is full. */
bool batches_add(struct batches *batches, struct api_batch *batch, struct api_error *err);
bool batches_have_room(const struct batches *batches, const char *owner, struct api_error *err);
/* NULL: there is none, or it is another's. */
struct api_batch *batches_find(struct batches *batches, const char *id, const char *owner);
void batches_end_batch(struct batches *batches, struct api_batch *batch, enum batch_status status);
