/* Carries a pipeline's messages (pipeline/wire.h) over the mesh: from devices' threads to the loop
 * and out, and from links to the driver or runner that they are for.
 *
 * One carrier a node. An end is this node's part of an instance: its driver, or its runner. Sending
 * may be done from any thread; all else is on the loop's. The mesh's events `memory`, `frame` and
 * `down` must be passed on to the carrier.
 *
 * A message is sent from the memory in which it was written, and received into memory of its own;
 * both go back to a small store, so that once messages have had their largest size nothing is
 * allocated any more.
 *
 * A message for a node to which there is no link is lost, and `lost` is called; so it is when a
 * link goes down: which messages had arrived nobody knows then. */
#pragma once

#include "mesh/frames.h"
#include "mesh/mesh.h"
#include "pipeline/wire.h"

struct carrier;

struct carrier_handlers {
    /* The peer cannot be reached, or could not be for a moment: what was under way through it is
     * lost. */
    void (*lost)(void *arg, const uint8_t node_id[NODE_ID_BYTES], const struct error *why);
    void *arg;
    /* Optional. A message came from there for a pipeline that is not here, or not any more, or not
     * yet. */
    void (*stray)(void *arg, const uint8_t node_id[NODE_ID_BYTES], const struct wire_route *route);
    /* Optional. A message about KV caches (pipeline/cache_wire.h) came from there; good until this
     * returns. An error: the sender broke the rules. */
    enum error_code (*cache)(void *arg, const uint8_t node_id[NODE_ID_BYTES], const void *bytes,
                             size_t size, struct error *err);
    /* Optional. The micro-batch is wanted no more, says that node. */
    void (*halt)(void *arg, const uint8_t node_id[NODE_ID_BYTES], const struct wire_route *route);
};

enum error_code carrier_open(uv_loop_t *loop, struct mesh *mesh,
                             const struct carrier_handlers *handlers, struct carrier **out,
                             struct error *err);
/* After its ends' drivers and runners are closed, and before mesh_close(). What is queued is
 * dropped; it is freed when its links have given back what was under way. */
void carrier_close(struct carrier *carrier);

/* Takes the message: the buffer is empty afterwards, or holds memory to be used again. Any
 * thread. */
void carrier_send(struct carrier *carrier, const uint8_t node_id[NODE_ID_BYTES],
                  struct buffer *message);

/* Whether the peer's version knows rotations other than the model's (Demand.rope), and has room for
 * long trains of guesses; false: or there is no link. The loop's thread. */
bool carrier_takes_rope(const struct carrier *carrier, const uint8_t node_id[NODE_ID_BYTES]);

/* The same for a message about KV caches. */
void carrier_send_cache(struct carrier *carrier, const uint8_t node_id[NODE_ID_BYTES],
                        struct buffer *message);

/* A micro-batch is wanted no more: goes on the control channel, past messages that wait there. Lost
 * where there is no link or no memory, and nobody is told. */
void carrier_send_halt(struct carrier *carrier, const uint8_t node_id[NODE_ID_BYTES],
                       const struct wire_route *route);

/* A message for an instance here. ERROR_NOT_FOUND: not for this placement of it. All else but
 * ERROR_NONE means that the sender broke the rules: its link is aborted. */
typedef enum error_code (*carrier_receive_fn)(void *arg, const void *bytes, size_t size,
                                              struct error *err);

/* Messages of `instance` go to `receive` from now on; NULL: to nobody. ERROR_BUSY: there are
 * LIMIT_CARRIER_ENDS. */
enum error_code carrier_attach(struct carrier *carrier, uint64_t instance,
                               carrier_receive_fn receive, void *arg, struct error *err);

/* ---- the mesh's events ---- */
/* FRAME_PIPELINE, FRAME_CACHE and FRAME_HALT. */
void carrier_frame(struct carrier *carrier, struct link *link, const struct frame_header *header,
                   const uint8_t *payload);
void carrier_down(struct carrier *carrier, struct link *link, const struct error *why);
