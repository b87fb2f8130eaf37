/* Gathering a model that the cluster does not have (gathering/gather.h), between nodes: machines
 * fetch parts of its file from the hub, all at once, before anything of it is in the log.
 *
 * The asking node reads the header, asks placing where the model would go, and tells each of those
 * nodes which units to fetch: FRAME_GATHER, node.Gather. Each answers with what it has:
 * FRAME_GATHERED, node.Gathered. When the whole has the hub's SHA-256, the asker makes the manifest
 * of the units' own, all put their parts onto their shelves, and the model is registered. Then it
 * is placed as any other.
 *
 * A node of protocol 1.1 is left out, as is one that lends nothing, whose disk is too small, or
 * that cannot reach the hub. The asker may be the only one left: then it fetches all of it.
 *
 * All on the loop's thread; works and what the hub is asked first have threads of their own. */
#pragma once

#include "node/daemon_state.h"

struct gathering;
struct gather_ask;
struct frame_header;

struct gathering *gathering_new(struct daemon *daemon); /* NULL: no memory */
/* Works end, and what they fetched stays; before weights_close(). */
void gathering_close(struct gathering *gathering, void (*closed)(struct daemon *daemon));
void gathering_free(struct gathering *gathering); /* after weights_close(); NULL is fine */

/* FRAME_GATHER, FRAME_GATHERED. ERROR_INVALID: the peer broke the protocol. */
enum error_code gathering_take(struct daemon *daemon, struct peer *peer,
                               const struct frame_header *header, const uint8_t *payload,
                               struct error *err);
void gathering_down(struct daemon *daemon, const struct peer *peer); /* its last link */

/* ---- asking ---- */
struct gathering_node {
    const char *name;
    uint64_t bytes, here, bytes_per_s; /* bytes_per_s 0: not known */
    bool is_lost;
    const char *problem; /* NULL: none */
};
struct gathering_seen {
    const char *state; /* "asking the hub", "fetching", "keeping" */
    const char *file;  /* what is fetched; "": not known yet */
    uint64_t bytes;
    double forecast_s;         /* until all of it is here and checked; < 0: not known yet */
    bool is_forecast_measured; /* by what came; else by the header's speed */
    uint32_t n_nodes;
    struct gathering_node nodes[64];
};

struct gathering_hearer {
    void (*seen)(void *self, const struct gathering_seen *seen); /* about once a second */
    /* The model's name in the cluster; or the path of the file that is here already; or why not.
     * ERROR_UNSUPPORTED: nothing was fetched; it may still be pulled as a whole. Then nothing more
     * comes. */
    void (*done)(void *self, const char *model, const char *path, const struct error *err);
    void *self;
};
/* The name as hub_name_parse() takes it. ERROR_BUSY: too many are gathered. */
enum error_code gathering_begin(struct daemon *daemon, const char *name,
                                const struct place_demand *wanted, const char *actor,
                                const struct gathering_hearer *hearer, struct gather_ask **out,
                                struct error *err);
void gathering_cancel(struct gather_ask *ask); /* nobody hears of it any more: it ends */
