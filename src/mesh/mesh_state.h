/* The inside of a mesh: for mesh.c, incoming.c, dial.c, greeting.c and the link's files. */
#pragma once

#include "mesh/mesh.h"
#include "mesh/stream_tcp.h"

struct greeting;
struct quic_endpoint;

struct listener {
    uv_tcp_t tcp;
    uv_tcp_t
        spare; /* takes what there is no memory for: libuv waits until a connection is accepted */
    bool spare_used, spare_again;
    uint32_t n_open;
    struct mesh *mesh;
    struct listener *next;
};

struct mesh {
    struct mesh_options options;
    uint8_t greeting[LIMIT_GREETING_BYTES]; /* options.greeting points here */
    uint64_t boot;
    uint64_t n_random; /* drawn from boot so far */
    uv_async_t wake;   /* the next turn: what was put off until no caller is on the stack */
    struct link *links;
    struct greeting *greetings;
    struct dial *dials;
    struct listener *listeners;
    struct quic_endpoint *quic; /* NULL over TCP */
    uint32_t n_links, n_greetings, n_dials, n_listeners;
    bool closing, wake_closing;
    void (*closed)(void *self);
    void *closed_self;
};

void mesh_wake(struct mesh *mesh);
uint64_t mesh_random(struct mesh *mesh);

/* Begins a stream to an address, over the mesh's transport. */
enum error_code mesh_connect(struct mesh *mesh, const struct sockaddr *address, struct stream **out,
                             struct error *err);

/* This node's hello for a channel. */
struct hello mesh_hello(const struct mesh *mesh, uint32_t channel, uint32_t n_channels,
                        uint64_t session);

/* In whatever phase but down; NULL: none. */
struct link *mesh_find_any(struct mesh *mesh, const uint8_t node_id[NODE_ID_BYTES]);

/* incoming.c */
void incoming_stream(struct mesh *mesh,
                     struct stream *stream); /* of a peer that connected; takes it */
void incoming_hello(struct greeting *greeting, const struct hello *hello);

/* dial.c: what a dial must know of */
void dials_see_link(struct mesh *mesh, struct link *link); /* made, by whomever */
void dials_link_up(struct mesh *mesh, struct link *link);
void dials_link_down(struct mesh *mesh, struct link *link, const struct error *why);
bool dials_have_greeted(struct mesh *mesh, const uint8_t node_id[NODE_ID_BYTES]);
void dials_close(struct mesh *mesh);
