/* A stream on its way to becoming a channel: the TLS handshake, then one hello each way.
 *
 * The end that dialled says hello first; the other answers with its hello or with a refusal. All of
 * it has to happen within greeting_ms. Whoever made the greeting is told once how it ended, from
 * the loop; then it goes by itself. All on the loop's thread. */
#pragma once

#include "mesh/crowd.h"
#include "mesh/mesh_state.h"

enum greeting_phase {
    GREETING_SHAKING,   /* TLS */
    GREETING_WAITING,   /* for the peer's hello or answer */
    GREETING_DECIDING,  /* its hello is with incoming.c */
    GREETING_LINGERING, /* refused: until the peer has read why */
    GREETING_OVER,
};

struct greeting {
    struct mesh *mesh;
    struct greeting *next, *previous;
    struct stream *stream; /* NULL: taken */
    enum greeting_phase phase;
    bool is_server;
    struct hello ours; /* what this node says, when it dialled */
    uint8_t peer[NODE_ID_BYTES];
    struct stream_host host; /* of the peer */
    struct frame_reader reader;
    uint8_t bytes[LIMIT_HELLO_BYTES];
    uv_timer_t timer;
    uint32_t n_open;
    /* Of a greeting that this node dialled, exactly one of them is called, once: */
    enum error_code (*check)(void *owner, struct greeting *greeting,
                             struct error *err); /* before the hello is sent */
    void (*answered)(void *owner, struct greeting *greeting, const struct hello *hello);
    /* reason: REFUSAL_UNKNOWN when it was not refused but failed */
    void (*failed)(void *owner, enum refusal_reason reason, const struct error *err);
    void *owner;
};

/* The stream is the greeting's. NULL: out of memory; then the stream has been closed. */
struct greeting *greeting_new(struct mesh *mesh, struct stream *stream, bool is_server);

/* Sends a hello, and gives the stream away; the greeting is over. ERROR_NONE or why it cannot be
 * sent (closed then). */
enum error_code greeting_accept(struct greeting *greeting, const struct hello *answer,
                                struct stream **stream, struct error *err);
void greeting_refuse(struct greeting *greeting, enum refusal_reason reason, const char *text);
struct stream *greeting_take(struct greeting *greeting);      /* the stream; the greeting is over */
void greeting_abandon(struct greeting *greeting);             /* nobody is told */
void greetings_abandon(struct mesh *mesh, const void *owner); /* all that have this owner */
void greeting_begin(struct greeting *greeting); /* of a stream that is connected already */
