/* One channel of a link: frames over a stream. The queue of what is to be sent, and the reader of
 * what comes.
 *
 * It decides nothing: what a frame means, and what follows from a failure, is the link's
 * (link_state.h). All on the loop's thread. */
#pragma once

#include "mesh/link.h"

enum {
    CHANNEL_RECORD_BYTES =
        16 * 1024, /* of TLS: a frame within one is encrypted and authenticated once */
    CHANNEL_POST_BYTES = 64 * 1024,   /* a post up to this size needs no copy, when nothing waits */
    CHANNEL_KEPT_BYTES = 1024 * 1024, /* memory for payloads that is kept from frame to frame */
    CHANNEL_TURN_BYTES = 1024 * 1024, /* read before the loop looks after others */
};

/* Zeroed: not attached. */
struct channel {
    struct link *link;
    uint32_t index;
    struct stream *stream;
    /* receiving */
    struct frame_reader reader;
    uint8_t *memory; /* the channel's own */
    uint32_t memory_bytes;
    uint64_t
        begun_ns; /* when the frame that is being read was begun, or reading resumed within it */
    bool paused;
    bool must_read; /* in the link's next turn */
    bool bye_received;
    /* sending */
    struct link_send *first, *last;
    uint64_t queued_bytes;
    bool was_full; /* `drained` is owed */
    bool bye_queued;
    uint64_t used_ns; /* when a frame of a user was last sent or received */
    struct link_counts counts;
};

void channel_attach(struct channel *channel, struct link *link, uint32_t index,
                    struct stream *stream);

/* Reads and sends what can be. */
void channel_run(struct channel *channel);

/* `own`: a frame of the link itself, which is taken however full the queue is. */
enum error_code channel_post(struct channel *channel, const struct frame_header *header,
                             const void *payload, bool own, struct error *err);
enum error_code channel_send(struct channel *channel, struct link_send *send, struct error *err);

/* Everything has been given to the stream, the BYE too. */
bool channel_is_drained(const struct channel *channel);

/* What was queued goes to the link's list of finished requests. */
void channel_cancel(struct channel *channel);
void channel_deinit(struct channel *channel); /* its stream is closed by the link */
