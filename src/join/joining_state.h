/* What the files of joining share. */
#pragma once

#include "join/joining.h"
#include "trust/security.h"

enum { JOINING_HOST_MAX = 256, JOINING_ADDRESSES_MAX = 8 };

enum joining_phase {
    JOINING_LOOKING,   /* for the host's addresses */
    JOINING_SHAKING,   /* TCP and TLS, with one of them */
    JOINING_PACING,    /* until this machine may ask again */
    JOINING_TALKING,   /* the machine is at work */
    JOINING_COMPARING, /* a person is asked */
    JOINING_STORING,   /* the owner keeps what it got */
    JOINING_LEAVING,   /* until the member knows it */
    JOINING_OVER,
};

struct joining {
    struct joining_options options;
    char host[JOINING_HOST_MAX];
    char code[JOIN_CODE_DIGITS];
    uint8_t binding[CHANNEL_BINDING_BYTES];
    enum joining_phase phase;
    struct link_security security;
    struct sockaddr_storage addresses[JOINING_ADDRESSES_MAX];
    uint32_t n_addresses, next_address;
    uv_getaddrinfo_t resolve;
    uv_timer_t timer;
    struct stream *stream;        /* while shaking */
    struct join_channel *channel; /* NULL: not yet, or closed */
    struct joiner machine;
    bool machine_runs;
    bool is_member;
    uint64_t turn_by_ms, due_ms; /* due: what the timer waits for */
    uint32_t n_open;             /* handles and requests that are not given back yet */
    struct error why;
    bool told; /* `ended` was raised */
    bool closing;
    void (*closed)(void *arg);
    void *closed_arg;
};

/* ---- joining_connect.c: from a host's name to a TLS channel ---- */

void joining_connect(struct joining *joining);
void joining_disconnect(struct joining *joining); /* of one that is under way */

/* ---- joining.c ---- */

/* The handshake is over; the stream is the callee's. */
void joining_connected(struct joining *joining, struct stream *stream);
void joining_over(struct joining *joining, const struct error *why);
void joining_release(struct joining *joining);            /* one of n_open has been given back */
void joining_timer(struct joining *joining, uint64_t ms); /* on_time() after so long */
void joining_stream_closed(void *owner);                  /* for stream_close(): one of n_open */
