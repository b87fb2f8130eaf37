/* The inside of gathering*.c. */
#pragma once

#include "gathering/gather_work.h"
#include "hub/hub.h"
#include "node/gathering.h"
#include "node/peers.h"
#include "weights/weights.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    GATHERING_MINOR = 2,            /* of the protocol: older nodes know no FRAME_GATHER */
    GATHERING_MS = 50,              /* between two looks */
    GATHERING_TELL_MS = 250,        /* between two reports without news */
    GATHERING_LOOK_MS = 3000,       /* for the answer to `looks` */
    GATHERING_KEEP_MS = 300 * 1000, /* for what is right to be on the shelf */
    GATHERING_ASKS_MAX = 2,
    GATHERING_SHARES_MAX = 4,
    GATHERING_KEPT_MAX = 64,            /* shares, those that have failed among them */
    GATHERING_MANIFEST_BYTES = 3 << 20, /* of a message */
};

#define GATHERING_KEEP_BPS UINT64_C(50000000) /* and so much more time, where files are copied */
#define GATHER_NO_PART UINT32_MAX             /* one of several files' headers */

struct gather_own { /* a unit of a share */
    struct gather_wanted wanted;
    uint32_t part; /* of the manifest, or GATHER_NO_PART */
    bool has_digest, is_kept;
    struct digest digest;
};

struct gather_fetch { /* one file of a share */
    struct gather_file file;
    struct gather_work *work;    /* NULL: none now */
    struct gather_work *dropped; /* one whose bytes were wrong, on its way out */
    uint64_t here, bytes_per_s;
    char released[PATH_MAX]; /* where its bytes are */
};

/* What this node fetches for an asker. */
struct gather_share {
    struct gather_share *next;
    struct gathering *gathering;
    char asker[NODE_ID_TEXT];
    uint64_t id;
    uint32_t round;
    struct gather_fetch *fetches; /* of each file */
    uint32_t n_fetches;
    struct gather_own *own; /* in the order of their indexes */
    uint32_t n_own;
    bool must_order;          /* the works have not been told of `own` */
    bool looks;               /* it is to say what is here since earlier */
    struct manifest manifest; /* n_parts: what is right is to be kept */
    bool is_keeping;          /* weights_adopt() is under way */
    bool has_kept, has_ended, drops, was_told_problem;
    uint64_t told_ms, told_here;
    struct error problem;
    bool was_known; /* it was gathered before, as … */
    struct digest known;
    struct weights_facts facts; /* has_kept, where there was something to keep */
};

/* What the hub is asked first, on a thread. */
struct gather_prepared {
    pthread_t thread;
    atomic_bool stop, is_done;
    char word[GATHER_NAME];
    /* the answer */
    struct error err;
    char path[PATH_MAX]; /* a file that is here */
    struct gather_file *files;
    uint32_t n_files;
    struct model *model;           /* of the headers */
    struct digest header;          /* of several files: of the one header that is made of theirs */
    uint64_t *header_bytes;        /* of each file */
    struct digest *header_digests; /* of several files: of each file's */
    struct hub_headers headers;
    double header_bytes_per_s;
};

struct gather_node_of { /* a node of an ask, by the gathering's numbers */
    char id[NODE_ID_TEXT];
    bool has_kept, has_looked;
    uint32_t n_looked; /* files of which it has said what is there */
    bool looked[GATHER_FILES];
    uint8_t *has; /* n_looked: of each unit, whether all of it was there */
    char problem[200];
};

struct gather_ask {
    struct gather_ask *next;
    struct gathering *gathering;
    struct gathering_hearer hearer; /* done NULL: nobody hears */
    uint64_t id;
    struct place_demand wanted;
    char actor[AUDIT_WHO_TEXT];
    struct gather_prepared *prepared; /* until it has answered */
    struct gather_file *files;
    uint32_t n_files;
    uint64_t bytes;           /* of all files */
    struct digest *wholes;    /* of each file */
    struct digest header;     /* of several files: as in gather_prepared … */
    struct digest *headers;   /* … */
    struct manifest manifest; /* without digests until all is there */
    struct gather_unit *units;
    uint32_t n_units;
    uint32_t *parts;                          /* of each unit: the manifest's, or GATHER_NO_PART */
    char known[LIMIT_CLUSTER_TEXT_BYTES + 1]; /* "": the cluster does not have it yet */
    struct gather *gather;                    /* NULL: not yet */
    double header_bytes_per_s;
    struct gather_node_of nodes[GATHER_NODES];
    uint32_t n_nodes;
    uint32_t *owners; /* of each unit, as placing has it, until all have looked */
    enum { ASK_PREPARES, ASK_LOOKS, ASK_FETCHES, ASK_KEEPS, ASK_REGISTERS, ASK_OVER } phase;
    uint64_t seen_ms, looks_ms, keeps_ms; /* looks_ms, keeps_ms: since then */
};

struct gathering {
    uv_timer_t timer; /* first */
    struct daemon *daemon;
    bool is_ticking, is_closing;
    void (*closed)(struct daemon *daemon);
    struct gather_share *shares;
    struct gather_ask *asks;
    uint64_t next_id;
};

void gathering_wake(struct gathering *gathering);

/* gathering_files.c: what a share fetches of each file. */
enum error_code gather_fetches_read(const Node__Gather *said, struct gather_fetch **out,
                                    uint32_t *n, struct error *err);
/* Units of `own` that are wanted are its work's order. */
enum error_code gather_fetch_order(struct gather_share *share, uint32_t file, struct error *err);
struct gather_fetch *gather_fetch_of(struct gather_share *share, uint32_t unit); /* NULL: none */
bool gather_has_work(const struct gather_share *share);
bool gather_has_dropped(const struct gather_share *share);
void gather_release_all(struct gather_share *share);
void gather_drop_all(struct gather_share *share); /* what came is wrong */
/* Works that are on their way out; ends: all others, too. */
void gather_fetches_end(struct gather_share *share, bool ends);
void gather_fetches_close(struct gather_share *share); /* waits for their threads */
/* Bytes that are here of what the works fetch, and how fast they come. */
uint64_t gather_fetches_here(const struct gather_share *share);
uint64_t gather_fetches_speed(const struct gather_share *share);
/* By what the hub says of its files, what was gathered. */
void gather_share_name(const struct gather_share *share, char out[static DIGEST_TEXT]);
struct gather_own *gather_own_find(const struct gather_share *share, uint32_t index);

/* gathering_share.c */
void gather_share_take(struct gathering *gathering, const char *asker, const Node__Gather *said);
void gather_share_step(struct gather_share *share);
/* Which parts are to be kept: those of its own that are what the manifest says, and are not kept
 * yet. ERROR_INVALID: one is not. part_set_deinit() frees *out, also after an error. */
enum error_code gather_share_right(const struct gather_share *share, struct part_set *out,
                                   struct error *err);
void gather_share_leave(struct gather_share *share); /* the asker is gone: what is here stays */
bool gather_share_is_over(const struct gather_share *share);
void gather_share_free(struct gather_share *share); /* waits for its threads */
const struct weights_facts *gather_share_facts(const struct gathering *gathering, uint64_t id);

/* gathering_ask.c */
void gather_ask_take(struct gathering *gathering, const char *from, const Node__Gathered *said);
void gather_ask_step(struct gather_ask *ask);
void gather_ask_lost(struct gather_ask *ask, const char *node);
void gather_ask_free(struct gather_ask *ask);

/* gathering_begin.c: who fetches what. */
enum error_code gather_ask_begin(struct gather_ask *ask, struct error *err);
/* Once they have said what is there since earlier. */
enum error_code gather_ask_deal(struct gather_ask *ask, struct error *err);
struct gather_prepared *gather_prepare(const char *word, struct error *err); /* NULL: err */
void gather_prepared_free(struct gather_prepared *prepared); /* waits for it; NULL is fine */
