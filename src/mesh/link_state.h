/* The inside of a link: for link.c, link_alive.c, link_bursts.c, link_info.c and channel.c. */
#pragma once

#include "mesh/channel.h"
#include "mesh/mesh_state.h"
#include "mesh/ping.h"
#include "mesh/probe.h"
#include "mesh/pulse.h"

enum link_phase {
    LINK_OPENING, /* channels are being attached */
    LINK_UP,
    LINK_CLOSING, /* a BYE was queued: no more is taken */
    LINK_DOWN,    /* failed or closed; torn down in the mesh's next turn */
};

/* The burst that is coming in. */
struct burst_watch {
    uint32_t number, n_seen;
    uint64_t half_ns; /* when the first half was complete */
    uint64_t bytes;   /* since then */
    bool active;
};

struct link {
    struct mesh *mesh;
    struct link *next, *previous;
    enum link_phase phase;
    bool was_up, is_ours, torn, silent_told;
    uint32_t n_channels, n_attached;
    uint32_t n_open; /* streams and the timer, until the loop has given them back */
    uint8_t peer[NODE_ID_BYTES];
    struct hello hello;
    struct link_version version;
    uint64_t session;
    struct channel channels[LIMIT_LINK_CHANNELS];
    struct link_send *done_first, *done_last; /* whose `done` is to be called */
    struct error why;
    void *data;
    /* keep-alive */
    uv_timer_t timer;
    uint64_t heard_ns, up_ns;
    uint64_t doubt_ns;   /* not 0: heard by then, or it is dead */
    uint64_t closing_ns; /* when it must be down, unless something still moves … */
    uint64_t closing_end_ns, closing_bytes; /* … then; and what had moved at the last look */
    uint64_t ping_number, pinged_ns, probed_ns;
    bool watched;
    struct pulse pulse; /* of the answers, while it is watched */
    struct link_probe probe;
    struct burst_watch watch;
    enum topology_class class;
    struct link_counts counts; /* of unknown frames only; the others are the channels' */
};

/* A link that has its control stream. The stream is the link's from here, also on failure. */
enum error_code link_new(struct mesh *mesh, struct stream *control,
                         const uint8_t peer[NODE_ID_BYTES], const struct hello *hello,
                         uint32_t n_channels, bool is_ours, struct link **out, struct error *err);

/* One more channel; the last makes the link up. */
void link_attach(struct link *link, uint32_t index, struct stream *stream);

/* It is over, in the next turn; the first reason counts. */
void link_fail(struct link *link, const struct error *why);
void link_failf(struct link *link, enum error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

void link_turn(struct link *link); /* the mesh's turn: everything that was put off */

/* From the channels. */
bool link_is_reading(const struct link *link);
void link_take_frame(struct link *link, struct channel *channel);
void link_finished_send(struct link *link, struct link_send *send, enum error_code code);
void link_look(struct link *link); /* something has changed: another turn */

/* link_alive.c: pings, silence, deadlines, doubt. */
void link_alive_start(struct link *link);
void link_alive_frame(struct link *link, struct channel *channel, const struct frame_header *header,
                      const uint8_t *payload);
void link_doubt(struct link *link); /* the peer says that it has no link: it must answer soon */

/* link_bursts.c: bandwidth. */
void link_bursts_step(struct link *link, uint64_t now_ns);
enum error_code link_bursts_frame(struct link *link, struct channel *channel,
                                  const uint8_t *payload, uint32_t size, struct error *err);
