/* Private to weights*.c.
 *
 * Invariants: what a job on the pool touches is its own, or not touched by the loop until the job
 * is done. All changes of the shelf are jobs of one lane, one at a time in order, because a shelf
 * belongs to one thread. Verifying is beside it: shelf.h allows that for parts that are not kept
 * yet. */
#pragma once

#include "base/buffer.h"
#include "base/limits.h"
#include "mesh/frames.h"
#include "weights/converted.h"
#include "weights/fetch_message.h"
#include "weights/shelf.h"
#include "weights/weight_source.h"
#include "weights/weights.h"

#include <stdatomic.h>

struct weights_entry;
struct weights_peer;

/* ---- jobs: weights_jobs.c ---- */
struct weights_job {
    uv_work_t work;
    struct weights *weights;
    struct weights_job *next;
    void (*run)(struct weights_job *job);  /* on the pool */
    void (*done)(struct weights_job *job); /* on the loop; the job is the callee's */
    bool in_lane;
    bool
        must_run; /* also while closing; else err is ERROR_CANCELLED then and run() is not called */
    struct error err;
};
void weights_job_start(struct weights *weights, struct weights_job *job);
void weights_lane_add(struct weights *weights, struct weights_job *job);

/* ---- own files: weights_files.c ---- */
struct weights_file {
    struct weights_file *next;
    char *path;
    struct model *model;
    struct manifest manifest;
    struct weight_source source;
    bool is_adding;   /* a job has it */
    bool is_used;     /* it is, or was, an entry's; else it is only a name */
    bool has_changed; /* since it was hashed */
};
void weights_files_load(struct weights *weights);
void weights_files_free(struct weights *weights);
/* The entry's file, as long as it is what was hashed; NULL: none. */
struct weights_file *weights_file_of(struct weights_entry *entry);

/* ---- a model on the shelf: weights_shelf.c ---- */
struct weights_shelved { /* zeroed: not on the shelf, or not opened */
    struct shelf_model *shelf;
    struct weight_source source;
    struct part_set has; /* the loop's copy: kept parts */
    struct model *model; /* NULL: the header is not there, or could not be opened yet */
    bool is_dead;        /* the header is there and is no model that this version can use */
};
void weights_shelved_close(struct weights_shelved *shelved);
/* ERROR_NOT_FOUND: it is not on the shelf, and no manifest was given (empty bytes) to put it there.
 */
enum error_code weights_shelved_open(struct shelf *shelf, const struct digest *id,
                                     const struct buffer *bytes, struct weights_shelved *out,
                                     struct error *err);
/* The header, which is kept. What lacks memory, or the disk, may be tried again: it is not dead. */
enum error_code weights_shelved_open_header(struct weights_shelved *shelved, struct error *err);

struct weights_write { /* a chunk on its way to the shelf */
    struct weights_job job;
    struct weights_write *next;
    struct weights_entry *entry;
    struct shelf_model *shelf;
    uint32_t generation, part, size, capacity;
    uint64_t offset;
    const uint8_t *bytes; /* in the memory */
    uint8_t memory[];
};

struct weights_verify { /* a part whose bytes have all come */
    struct weights_job job;
    struct weights_verify *next;
    struct weights_entry *entry;
    const struct shelf_model *shelf; /* NULL: of a manifest, these bytes */
    struct buffer bytes;
    struct digest *chunks; /* of a converted part: what its senders said; NULL: the manifest does */
    uint32_t generation, part;
    uint64_t after_write; /* so many of the entry's writes must be done */
};

/* Looks whether the model is on the shelf. `manifest` (taken; NULL: none): puts it there where it
 * is not. */
void weights_shelf_look(struct weights_entry *entry, struct buffer *manifest);
void weights_shelf_look_at_all(struct weights *weights);
/* Room for the entry's fetching.wanted; then weights_fetch_begin(). */
void weights_shelf_reserve(struct weights_entry *entry);
void weights_shelf_open_header(struct weights_entry *entry); /* once more, then a step */
/* Records what is verified and, `trim`, gives back what else was taken. */
void weights_shelf_keep(struct weights_entry *entry, bool trim);

/* ---- chunks and parts: weights_bytes.c ---- */
void weights_shelf_write(struct weights_write *write);
bool weights_shelf_verify(struct weights_entry *entry, uint32_t part); /* false: no memory */
void weights_shelf_verify_next(struct weights *weights);
struct weights_write *weights_memory_take(struct weights *weights, uint32_t bytes); /* NULL: none */
void weights_memory_give(struct weights *weights, struct weights_write *memory); /* NULL is fine */

/* ---- fetching: weights_step.c decides what is next, weights_fetch.c moves it ---- */
struct weights_holder { /* another node, and what it has of a model */
    struct weights_holder *next;
    uint8_t node_id[NODE_ID_BYTES];
    struct weights_peer *peer; /* NULL: it is away */
    uint64_t manifest_bytes;   /* 0: it does not know the model */
    struct part_set has;
    uint32_t index; /* in the fetch */
    bool in_fetch, was_away, has_lied, had_wrong_size;
};

struct weights_ask { /* a request under way */
    struct weights_ask *next;
    struct weights_entry *entry;
    struct weights_holder *holder;
    struct weights_peer *peer;
    uint32_t wire_id, id; /* on the wire; the fetch's */
};

struct weights_fetching {
    struct fetch *fetch;
    uint32_t generation;    /* of the fetch: what comes of an older one is dropped */
    bool is_manifest;       /* what is being fetched */
    struct manifest whole;  /* then: of one part, the manifest itself … */
    struct buffer bytes;    /* … and what there is of it */
    struct part_set wanted; /* else: these parts */
    uint64_t rest_ns;       /* a spare copy: nothing is asked for before */
    uint64_t since_ns;      /* the search for somebody who has the model */
    uint64_t n_writes, n_written;
    uint32_t *unkept; /* verified parts */
    uint32_t n_unkept;
    uint64_t unkept_bytes, kept_ns;
    uint32_t n_keeping;
    bool is_ending; /* all is verified, not all is recorded */
    struct fetch_progress progress;
};

struct weights_entry { /* a model */
    struct weights_entry *next;
    struct weights *weights;
    struct digest id;
    struct weights_file *file;       /* its own file; NULL: none */
    struct weights_version *version; /* it is another model in a smaller type; NULL: it is not */
    struct weights_shelved here;
    bool was_looked, is_busy; /* a job has `here`, or is about to change it */
    bool must_tell;           /* others are to be told what is here */
    uint64_t told_ns, touched_ns;
    uint32_t n_users, n_serving, n_jobs; /* n_jobs: that use here.shelf */
    bool is_wanted;
    bool is_spread;          /* only as a spare copy (weights_spread.c) */
    uint64_t spread_ns;      /* a spare copy failed then; 0: none did */
    struct part_set layers;  /* that are wanted: a bit a layer */
    struct part_set checked; /* parts that were hashed here before they were converted for others */
    struct weights_holder *holders;
    uint32_t n_holders;
    struct weights_fetching fetching;
    struct error problem;
    uint64_t problem_ns;
};

struct weights_entry *weights_find(struct weights *weights, const struct digest *id);
struct weights_entry *weights_make(struct weights *weights,
                                   const struct digest *id); /* NULL: memory, limit */
const struct model *weights_opened(struct weights_entry *entry);
/* False: its header is not here. */
bool weights_fill_facts(struct weights_entry *entry, struct weights_facts *out);
void weights_raise_changed(struct weights *weights);
void weights_wake_at(struct weights *weights, uint64_t at_ns);

/* What is next for a wanted model. */
void weights_step(struct weights_entry *entry);
/* Whether these layers' parts, and the header, are on this disk. */
bool weights_layers_are_here(struct weights_entry *entry, uint32_t first_layer, uint32_t n_layers);
void weights_step_failed(struct weights_entry *entry,
                         const struct error *why); /* the fetch ends with a problem */
void weights_step_tick(struct weights_entry *entry, uint64_t now_ns);
/* What is under way is given up without a problem; what is verified stays. */
void weights_step_end(struct weights_entry *entry);

/* The entry's fetching.wanted, for which there is room. */
void weights_fetch_begin(struct weights_entry *entry);
void weights_fetch_begin_manifest(struct weights_entry *entry, uint64_t bytes);
void weights_fetch_stop(struct weights_entry *entry);
void weights_fetch_pump(struct weights_entry *entry);
void weights_fetch_verified(struct weights_entry *entry, uint32_t part, bool is_good);
void weights_fetch_kept(struct weights_entry *entry);
/* The memory is the callee's. */
void weights_fetch_chunk(struct weights_peer *peer, const struct fetch_message *message,
                         struct weights_write *memory);
void weights_fetch_refused(struct weights_peer *peer, const struct fetch_message *message);
void weights_fetch_have(struct weights_entry *entry, struct weights_holder *holder);
void weights_fetch_away(struct weights_entry *entry, struct weights_holder *holder);

/* ---- spare copies: weights_spread.c ---- */
/* Whether the entry's fetch is to ask for nothing just now; the timer is set for when it is. */
bool weights_spread_rests(struct weights_entry *entry, uint64_t now_ns);
void weights_spread_asked(struct weights_entry *entry, const struct link *link, uint32_t bytes);
/* Somebody needs it now: no rests any more. */
void weights_spread_hurry(struct weights_entry *entry);

/* ---- models in a smaller type: weights_version.c ---- */
struct weights_version {
    struct weights_version *next;
    struct weights_entry *original;
    int type;
    struct weights_entry *entry; /* as which it is kept; NULL: not known yet */
    struct converted converted;
    bool is_making;         /* `converted`, by a job */
    uint64_t failed_ns;     /* the original is taken for a while from then on; 0: it did not fail */
    struct digest **chunks; /* of each part that is on its way, or NULL: what their senders said */
    double own_rate;        /* version_own_rate() */
    uint64_t came_bytes,
        came_ns;       /* converted by others; when the first of it came; 0: nothing did */
    bool was_weighed;  /* against fetching it as stored, which … */
    bool is_as_stored; /* … is sooner */
};
enum { WEIGHTS_VERSION_MINOR = 2 }; /* of links: its nodes convert for others */
void weights_versions_free(struct weights *weights);
/* The model whose parts others are asked for: the original's. */
const struct digest *weights_asked_id(const struct weights_entry *entry);
/* Puts it on the shelf, empty. */
void weights_version_put(struct weights_entry *entry);
/* True: its header is being written, and the next step comes after that. */
bool weights_version_puts_header(struct weights_entry *entry);
/* True: the original's parts are here, and are being converted instead of fetched. */
bool weights_version_converts(struct weights_entry *entry);
/* What the sender said of a chunk. False: memory. */
bool weights_version_note(struct weights_entry *entry, uint32_t part, uint64_t offset,
                          uint32_t size, const struct digest *digest);
/* Once, when enough has come to know how fast it comes: whether the original comes sooner. Then its
 * fetch is ended, and the owner asks for the original. */
void weights_version_weigh(struct weights_entry *entry, uint64_t now_ns);
/* What was said of all of the part's chunks, the caller's to free; NULL: the manifest has its
 * digest. */
struct digest *weights_version_take_chunks(struct weights_entry *entry, uint32_t part);
enum error_code weights_version_verify(const struct shelf_model *shelf, uint32_t part,
                                       const struct digest *chunks, struct error *err);
/* The fetch of it that is under way; zeroed: none is. */
struct fetch_progress weights_version_progress(const struct weights_entry *original);

/* ---- peers: weights_peers.c ---- */
struct weights_peer {
    struct weights_peer *next;
    struct weights *weights;
    struct link *link;
    uint8_t node_id[NODE_ID_BYTES];
    struct buffer outbox; /* messages that wait, each behind its length in 4 bytes */
    struct weights_write *receiving;
    uint32_t n_asked, n_in_hand; /* its requests: that wait or are in hand; in hand */
};
struct weights_peer *weights_peer_find(struct weights *weights, const struct link *link);
uint32_t weights_channel(const struct link *link);
void weights_post(struct weights_peer *peer, const struct fetch_message *message);
void weights_post_bytes(struct weights_peer *peer, const void *bytes, size_t size);
void weights_ask_have(struct weights_peer *peer, const struct weights_entry *entry);
void weights_tell_all(struct weights_entry *entry);

/* ---- serving: weights_serve.c ---- */
struct weights_answer {
    struct weights_job job;
    struct link_send send;
    struct weights_answer *next;
    struct weights_peer *peer;   /* NULL: gone */
    struct weights_entry *entry; /* whose source is being read; NULL: not yet, or not any more */
    enum { ANSWER_WAITS, ANSWER_READS, ANSWER_READY, ANSWER_SENDS } state;
    bool is_cancelled;
    struct fetch_message request;
    struct weight_source source;
    const struct model *model; /* the source's, where the part is to be converted */
    bool is_checked;           /* the part was held against its hash since this process began */
    struct part_set has;
    struct buffer message;
};
void weights_serve(struct weights_peer *peer, const struct fetch_message *request);
void weights_serve_cancel(struct weights_peer *peer, uint32_t id);
void weights_serve_down(struct weights_peer *peer);
void weights_serve_go_on(struct weights *weights);

/* ---- the whole ---- */
struct weights {
    struct weights_options options;
    char manifests[PATH_MAX], files_path[PATH_MAX];
    struct shelf *shelf;
    uv_timer_t timer;
    uint64_t wake_ns;
    atomic_bool closing;
    bool has_changed, timer_closed, aborts;
    uint64_t close_ns;
    void (*closed)(void *arg);
    void *arg;

    uint32_t n_jobs;
    struct weights_job *lane_first, **lane_last, *lane_running;
    struct weights_job *adding_first, **adding_last; /* files that wait to be hashed */
    bool is_adding;
    struct weights_verify *verify_first, **verify_last;
    uint32_t n_verifying;

    struct weights_file *files;
    struct weights_entry *entries;
    struct weights_version *versions;
    uint32_t n_files, n_entries;
    struct weights_peer *peers;
    struct weights_ask *asks;
    uint32_t next_wire_id;
    struct weights_answer *answers, **answers_last;
    uint32_t n_reading, n_converting; /* in hand, of all peers */
    struct weights_write *spare;
    uint32_t n_spare;
    uint64_t backlog_bytes;
    struct weights_counts counts;

    bool computes;       /* weights_set_busy() */
    uint64_t room_bytes; /* as last looked at … */
    uint64_t looked_ns;  /* … then; 0: not yet */
    bool is_looking;
};

/* How long is waited for somebody who has a model: as long as a fetch waits where nobody has a part
 * (fetch.h). */
static inline uint64_t weights_search_ns(const struct weights *weights)
{
    return weights->options.patience_ms * UINT64_C(1000000) / 6;
}

static inline bool weights_is_closing(const struct weights *weights)
{
    return atomic_load_explicit(&weights->closing, memory_order_relaxed);
}
void weights_close_when_done(struct weights *weights);
