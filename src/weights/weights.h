/* The weights of this node: models' files of this machine, parts of models that were fetched
 * (weights/shelf.h), fetching more from other nodes (weights/fetch.h), and giving others what is
 * here (weights/weight_source.h).
 *
 *     weights_open(&options, &weights, err);
 *     weights_add_file(weights, "/models/a.gguf", on_added, self);      // this node gives it to
 *                                                                       others
 *     weights_fetch(weights, &model, 8, 8);                             // that one gets what it
 *                                                                       needs of it
 *     … changed() …: weights_have(weights, &model, 8, 8) == WORKER_HAS_ALL
 *     const struct model *opened = weights_model(weights, &model);      … weights_release(weights,
 *                                                                       &model);
 *     weights_close(weights, closed, self);
 *
 * A fetch goes by steps: the manifest, by its hash; the header, so that the layers' tensors are
 * known; then the parts of the layers that are wanted. What is wanted meanwhile is fetched in the
 * next step. All nodes with a link are asked what they have, and say so again when they have more,
 * so those who fetch the same give each other what they have got.
 *
 * Other nodes get answers from a model's own file only while it has not changed since it was
 * hashed, and parts on the shelf only once they are verified and recorded.
 *
 * Threads: all calls and events are on the loop's thread. Disk and hashes are on libuv's thread
 * pool: what writes the shelf goes one after another, hashing and reading for others beside it.
 * Memory for bytes under way is bounded by LIMIT_WEIGHTS_BACKLOG_BYTES, LIMIT_WEIGHTS_FLIGHT_BYTES
 * and LIMIT_WEIGHTS_READ chunks. */
#pragma once

#include "cluster/worker.h"
#include "mesh/mesh.h"
#include "weights/fetch.h"

struct model;
struct weights;

struct weights_options {
    uv_loop_t *loop;
    struct mesh *mesh;
    const char *folder; /* STATE: its files, manifests/ and models/ are this part's. Copied */
    uint64_t limit_bytes, spare_bytes; /* shelf.h */
    uint32_t patience_ms;              /* of a fetch (fetch.h); 0: LIMIT_FETCH_PATIENCE_MS */
    /* What weights_have() or weights_model() would say may have changed. At most once a turn of the
     * loop; never from within a call of this header. NULL: nobody listens. */
    void (*changed)(void *self);
    void *self;
};

struct weights_facts {
    struct digest model;
    char name[MANIFEST_NAME];
    uint64_t bytes;
    uint32_t n_layers;
    char architecture[64];
};

/* Opens the shelf and begins to look at what is on it, and at the files that STATE/files names: a
 * missing one is skipped with a line in the log, and not forgotten. Links that are up already are
 * asked, too. */
enum error_code weights_open(const struct weights_options *options, struct weights **out,
                             struct error *err);

/* Before mesh_close(). Fetches end, what is verified is kept, jobs are waited for; a link on which
 * something of ours is still under way after LIMIT_WEIGHTS_CLOSE_MS is aborted. The mesh's events
 * must be passed on until `closed`, which is called from the loop when nothing is left. NULL:
 * nothing happens, and `closed` is not called. */
void weights_close(struct weights *weights, void (*closed)(void *arg), void *arg);

/* A model's file of this machine: opened, hashed (once: the manifest is cached), then given to
 * others. Its path is kept in STATE/files, so that after a restart it is there again. `done` is
 * called from the loop, with facts or with an error (ERROR_CANCELLED: closing). It may be NULL. */
void weights_add_file(struct weights *weights, const char *path,
                      void (*done)(void *arg, const struct weights_facts *facts,
                                   const struct error *err),
                      void *arg);

/* Parts of a model that came another way (docs/weights.md, "Gathering"), verified: at their places
 * in the model's files, which go. `has` has the manifest's parts; all are copied. `done` as above.
 */
void weights_adopt(struct weights *weights, const struct manifest *manifest,
                   const struct part_set *has, const char *const *paths, uint32_t n_paths,
                   void (*done)(void *arg, const struct weights_facts *facts,
                                const struct error *err),
                   void *arg);

/* Are these layers' tensors on this disk, header included? n_layers 0: the header alone. A model
 * that is still being looked at after weights_open() is said to be fetched. After
 * WORKER_CANNOT_FETCH it is WORKER_LACKS again when LIMIT_WEIGHTS_RETRY_MS have passed, or another
 * node has come or got more of it. */
enum worker_weights weights_have(struct weights *weights, const struct digest *model,
                                 uint32_t first_layer, uint32_t n_layers);

/* Begins, or adds to what is being fetched: one fetch a model. n_layers 0: the header alone.
 * Forgets a problem. */
void weights_fetch(struct weights *weights, const struct digest *model, uint32_t first_layer,
                   uint32_t n_layers);

/* The same slowly, as a spare copy (docs/weights.md): a piece at a time with rests between them,
 * and without making other models go. weights_fetch() of it makes it as fast as any other. Nothing
 * happens while the model is being fetched for use. One that failed is tried again after
 * LIMIT_WEIGHTS_RETRY_MS. */
void weights_spread(struct weights *weights, const struct digest *model, uint32_t first_layer,
                    uint32_t n_layers);
/* Something computes that fetching for spare copies would disturb: until the opposite is said. */
void weights_set_busy(struct weights *weights, bool computes);
/* Whether these layers are on this disk. Unlike weights_have() this is no use of them. */
bool weights_holds(struct weights *weights, const struct digest *model, uint32_t first_layer,
                   uint32_t n_layers);
/* How much room there was for fetched models without any going, at most LIMIT_SPREAD_ROOM_MS ago.
 * False: not looked yet. */
bool weights_room(struct weights *weights, uint64_t *bytes);

/* Why it could not be fetched; NULL: nothing is known against it. Good until the loop goes on. */
const char *weights_problem(struct weights *weights, const struct digest *model);
/* Of the fetch that is under way; zeroed: none is. */
struct fetch_progress weights_progress(struct weights *weights, const struct digest *model);

/* The model, opened: its own file, else the shelf's. NULL while the header is not here. It stays
 * good, and is not removed to make room, until weights_release(), once for each time that it was
 * given. */
const struct model *weights_model(struct weights *weights, const struct digest *model);
void weights_release(struct weights *weights, const struct digest *model);

/* ---- layers in a smaller type (docs/weights.md) ----
 *
 * Where an instance computes its weights in a smaller type, and its layers are not here, they are
 * fetched in that type from nodes that have the original and convert them; or as stored, where that
 * cannot be. Where they are streamed and the original is here, this node converts them into a file
 * of their own. Type 0: the call is that of the same name without `_at`. */
enum worker_weights weights_have_at(struct weights *weights, const struct digest *model,
                                    struct worker_precision precision, uint32_t first_layer,
                                    uint32_t n_layers);
void weights_fetch_at(struct weights *weights, const struct digest *model,
                      struct worker_precision precision, uint32_t first_layer, uint32_t n_layers);
/* The file that holds all of these layers: that of the smaller type (*is_smaller), or the original.
 * n_ranges 0: the one that *is_smaller says. NULL: neither does yet; what is missing is being
 * fetched. */
const struct model *weights_model_at(struct weights *weights, const struct digest *model,
                                     struct worker_precision precision,
                                     const struct worker_range *ranges, uint32_t n_ranges,
                                     bool *is_smaller);
void weights_release_at(struct weights *weights, const struct digest *model,
                        struct worker_precision precision, bool is_smaller);

/* All models of which the header is here; at most n. Returns how many there are. */
uint32_t weights_list(struct weights *weights, struct weights_facts *out, uint32_t n);

/* How much of the model's file is on this disk, 0 to 1; 0 also while that is being looked at. Does
 * not count as use. */
double weights_share(struct weights *weights, const struct digest *model);

/* Bytes of chunks that were sent and received, for telemetry and tests. */
struct weights_counts {
    uint64_t sent_bytes, received_bytes;
};
struct weights_counts weights_counts(const struct weights *weights);

/* ---- the mesh's events; frames of the type FRAME_WEIGHTS only ---- */
void *weights_memory(struct weights *weights, struct link *link, uint32_t channel,
                     const struct frame_header *header);
void weights_frame(struct weights *weights, struct link *link, const struct frame_header *header,
                   const uint8_t *payload);
void weights_up(struct weights *weights, struct link *link);
void weights_down(struct weights *weights, struct link *link);
void weights_drained(struct weights *weights, struct link *link, uint32_t channel);
