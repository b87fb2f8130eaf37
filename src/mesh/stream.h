/* An encrypted, ordered stream of bytes to one peer: what a channel of a link travels on.
 * stream_tcp.c and stream_quic.c make them; nothing above asks which.
 *
 * Nothing blocks. Whoever owns the stream sets `on_ready` and is called on the loop whenever
 * something may have changed: the handshake went on, there is something to read, there is room to
 * write, the stream failed. It is never called from within a function of the stream. Then the owner
 * tries what it wants until it says STREAM_AGAIN.
 *
 * A stream that nobody reads takes at most a buffer full from the network: then the sender waits.
 *
 * stream_close() ends it at once, from anywhere, also from on_ready; on_ready is not called any
 * more; the memory is given back by the loop later, and then `closed` is called. All on the loop's
 * thread. */
#pragma once

#include "base/error.h"

#include <openssl/types.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct stream;

enum stream_result {
    STREAM_DONE,   /* something was done */
    STREAM_AGAIN,  /* after the next on_ready */
    STREAM_END,    /* the peer writes no more */
    STREAM_FAILED, /* err says why */
};

struct stream_addresses {
    struct sockaddr_storage local, peer;
};

/* What the transport knows of its packets since the stream began. */
struct stream_packets {
    uint64_t sent, lost; /* lost: that had to be sent again */
    bool valid;
};

struct stream_impl {
    enum stream_result (*handshake)(struct stream *stream, struct error *err);
    enum stream_result (*read)(struct stream *stream, void *into, size_t size, size_t *n,
                               struct error *err);
    enum stream_result (*write)(struct stream *stream, const void *bytes, size_t size, size_t *n,
                                struct error *err);
    enum stream_result (*flush)(struct stream *stream, struct error *err);
    void (*finish)(struct stream *stream);
    void (*close)(struct stream *stream);
    SSL *(*ssl)(struct stream *stream);
    enum error_code (*sibling)(struct stream *stream, struct stream **out, struct error *err);
    void (*addresses)(const struct stream *stream, struct stream_addresses *addresses);
    void (*packets)(const struct stream *stream,
                    struct stream_packets *packets); /* NULL: not known */
    bool (*reached)(const struct stream *stream);
};

/* The part that all have, first in theirs. */
struct stream {
    const struct stream_impl *impl;
    void (*on_ready)(struct stream *stream, void *owner); /* NULL: nobody listens */
    void *owner;
    void (*on_closed)(void *owner); /* set by stream_close() */
    void *closed_owner;
};

/* STREAM_DONE when the peer has been verified (security.h says what that means for a client). */
static inline enum stream_result stream_handshake(struct stream *stream, struct error *err)
{
    return stream->impl->handshake(stream, err);
}

/* After the handshake. STREAM_DONE: *n bytes, 1 to size. */
static inline enum stream_result stream_read(struct stream *stream, void *into, size_t size,
                                             size_t *n, struct error *err)
{
    return stream->impl->read(stream, into, size, n, err);
}

/* After the handshake. STREAM_DONE: *n bytes were taken, 1 to size; their memory is the caller's
 * again. They may wait for stream_flush(). */
static inline enum stream_result stream_write(struct stream *stream, const void *bytes, size_t size,
                                              size_t *n, struct error *err)
{
    return stream->impl->write(stream, bytes, size, n, err);
}

static inline enum stream_result stream_flush(struct stream *stream, struct error *err)
{
    return stream->impl->flush(stream, err);
}

/* Nothing more will be written. What was is still sent, if the stream is not closed before. */
static inline void stream_finish(struct stream *stream)
{
    stream->impl->finish(stream);
}

/* The session, for who the peer is; it stays the stream's. */
static inline SSL *stream_ssl(struct stream *stream)
{
    return stream->impl->ssl(stream);
}

/* Begins another stream to the same peer, from the end that dialled. */
static inline enum error_code stream_sibling(struct stream *stream, struct stream **out,
                                             struct error *err)
{
    return stream->impl->sibling(stream, out, err);
}

static inline void stream_addresses(const struct stream *stream, struct stream_addresses *addresses)
{
    stream->impl->addresses(stream, addresses);
}

/* Of one that this end began: something has come from the other end. */
static inline bool stream_reached(const struct stream *stream)
{
    return stream->impl->reached(stream);
}

static inline void stream_packets(const struct stream *stream, struct stream_packets *packets)
{
    *packets = (struct stream_packets){0};
    if (stream->impl->packets)
        stream->impl->packets(stream, packets);
}

/* `closed` may be NULL. */
static inline void stream_close(struct stream *stream, void (*closed)(void *owner), void *owner)
{
    stream->on_ready = NULL;
    stream->on_closed = closed;
    stream->closed_owner = owner;
    stream->impl->close(stream);
}

static inline void stream_tell_ready(struct stream *stream)
{
    if (stream->on_ready)
        stream->on_ready(stream, stream->owner);
}

static inline void stream_tell_closed(struct stream *stream)
{
    if (stream->on_closed)
        stream->on_closed(stream->closed_owner);
}
