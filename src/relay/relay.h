/* Generators for the cluster's instances, wherever their drivers are: here, on another node, or
 * nowhere yet.
 *
 * A request is copied and kept, with what it has generated, until it is over. Where its instance's
 * driver is here, the request goes into it and its events come straight from the driver's threads;
 * where it is on another node, they travel as request/request_wire.h's messages, and the events
 * come on the loop's thread. Where it is nowhere, because the model is being loaded, the request
 * waits.
 *
 * Replay: when the driver is lost, prompt and generated so far are given to the next one, with so
 * much less to generate, and the text goes on where it was (driver.h, "Replay"). The asker sees a
 * pause: indices, rows and usage go on, no event comes twice. After a planned move the next driver
 * has what was computed in its caches, and computes one token (hosting.h). Lost means: the link to
 * its node went down, it was closed, a machine of its pipeline was lost (ERROR_IO), or find() knows
 * of another one by now. Other errors are the request's, and end it.
 *
 * The same relay serves the requests that other nodes send to a driver here. They end when their
 * link does. A request whose driver's node is not reached, but by others, goes to one of those,
 * which asks in this one's stead: a guest there, which goes straight to its driver or ends, so that
 * no request is handed on twice.
 *
 * What driver_submit() would refuse at once may be refused later here: `done` comes with
 * FINISH_ERROR and the driver's error. A generator's submit refuses what no driver would take.
 *
 * Limits: LIMIT_RELAY_REQUESTS of this node's own, LIMIT_RELAY_OF_PEER of another's. Answers that a
 * link does not take wait in a queue; a request that would overfill it ends with an error, and no
 * driver waits for a link.
 *
 * Threading: generator_submit() and generator_cancel() from any thread, callbacks included, but
 * `done` must not close the relay. All else on the loop's; find(), reaches(), through() and
 * wanted() are called on it, the first three under the relay's lock: they must not call the relay.
 * One lock guards what threads share (relay_core.h says what is decided behind it). It is held
 * while a request is put into a driver or cancelled there, so a request that has not ended keeps
 * its driver from being freed, and never while a handler runs. A token of a driver here takes no
 * lock. */
#pragma once

#include "mesh/frames.h"
#include "mesh/mesh.h"
#include "relay/relay_use.h"
#include "request/generator.h"

struct driver;
struct relay;

struct relay_options {
    uv_loop_t *loop;
    struct mesh *mesh;
    /* Where the instance's driver is now: here (*driver, good until the loop's next turn or the end
     * of a request that was put into it), or (*driver NULL) on a node. ERROR_BUSY: nowhere yet; the
     * text says what is being waited for. Other errors end the requests that ask. */
    enum error_code (*find)(void *self, const char *instance, struct driver **driver,
                            uint8_t node_id[NODE_ID_BYTES], uint64_t *epoch, struct error *err);
    /* Whether a node answers now; and, where it has not for a while, one that does and may reach it
     * (`out` NULL: is there one?). NULL: every node is reached for as long as there is a link to
     * it, and straight only. */
    bool (*reaches)(void *self, const uint8_t node_id[NODE_ID_BYTES]);
    bool (*through)(void *self, const uint8_t node_id[NODE_ID_BYTES], uint8_t *out);
    /* A request waits for it: load it. Called again every second while one does. NULL: nobody is
     * told. */
    void (*wanted)(void *self, const char *instance);
    uint64_t patience_ms; /* how long a request waits for a driver; 0: LIMIT_RELAY_PATIENCE_MS */
    uint64_t queue_bytes; /* 0: LIMIT_RELAY_QUEUE_BYTES */
    void *self;
};

/* Not copied: what `self` and `mesh` point to. ERROR_INVALID, ERROR_NO_MEMORY, ERROR_IO. */
enum error_code relay_open(const struct relay_options *options, struct relay **out,
                           struct error *err);

/* Before the drivers and the mesh are closed. Requests end with FINISH_CANCELLED; `closed` is
 * called from the loop when the last has. Generators are gone then. The events below must still be
 * passed on until then. */
void relay_close(struct relay *relay, void (*closed)(void *arg), void *arg);

/* The instance's generator, the same each time; lives as long as the relay. `context`: tokens of
 * one sequence, as its driver has. ERROR_INVALID: no such id or context. ERROR_BUSY:
 * LIMIT_CLUSTER_INSTANCES. */
enum error_code relay_generator(struct relay *relay, const char *instance, uint32_t context,
                                struct generator **out, struct error *err);

/* find() may answer otherwise now. From any callback: nothing happens before the loop's next
 * turn. */
void relay_changed(struct relay *relay);

/* What this node's users ask of every instance, in one call. */
void relay_use_report(struct relay *relay, struct relay_uses *out);
/* Whether requests of this node wait for the instance now. Any thread. */
bool relay_pause_report(struct relay *relay, const char *instance, struct relay_pause *out);

/* ---- the mesh's events: FRAME_REQUEST, both directions ---- */
void relay_frame(struct relay *relay, struct link *link, const struct frame_header *header,
                 const uint8_t *payload);
void relay_down(struct relay *relay, struct link *link);
