/* A dial: the wish for a link to one address, kept until it is forgotten. mesh.h says how it
 * behaves; the functions that others call are in mesh_state.h and mesh.h. */
#pragma once

#include "mesh/mesh_state.h"

enum { DIAL_ADDRESSES_MAX = 8 };

enum dial_phase {
    DIAL_WAITING,   /* for the timer */
    DIAL_RESOLVING, /* the host's name */
    DIAL_GREETING,  /* a connection is being made */
    DIAL_LINKED,    /* there is a link to the node, or one is opening */
    DIAL_CLOSED,
};

struct dial {
    struct mesh *mesh;
    struct dial *next, *previous;
    enum dial_phase phase;
    char host[256];
    uint16_t port;
    struct dial_status status;
    struct sockaddr_storage addresses[DIAL_ADDRESSES_MAX];
    uint32_t n_addresses, next_address;
    struct greeting *greeting;
    struct link *link; /* opening or up */
    uint64_t lost_ns;  /* when a link that had lasted ended, and none has come since; 0: none has */
    uint64_t hurried_ns; /* mesh_hurry() */
    uv_timer_t timer;
    uv_getaddrinfo_t resolve;
    uint32_t n_open; /* the timer and a resolution, until the loop has given them back */
};
