/* Gathering: machines of a cluster fetch a model's files together, each some of their parts, from a
 * hub that gives one SHA-256 for each whole file. Who fetches what, whose turn it is to hash, and
 * what follows when one is lost. A pure state machine; gather_work.h does what it says.
 *
 * Units. Each file is cut into units: its first is the header, the others are its tensors in order
 * of their places, each with the padding behind it. So units cover the files, one file after the
 * other. Headers go to every node; every other unit has one owner.
 *
 * The chain. A unit counts when its owner has all of its bytes and has said its SHA-256. The hash
 * of the whole file is made beside that: whoever owns the next units adds them to the state of
 * SHA-256 (trust/digest_chain.h), which travels from owner to owner in the file's order; with the
 * next file it begins anew. What comes out has to be the hub's. Otherwise nothing that was gathered
 * counts, and gather_again() begins anew, once.
 *
 * Losses. What a node had or was to have is given to the others, as their speeds allow. A unit
 * whose bytes were in the chain and that another fetches again has to have the SHA-256 that was
 * said before. A node that stands still while others get on is lost, too.
 *
 * Speed. Where a node is done, and another would take long, the idle one fetches some of the last
 * units of that one, if fetching and handing over the measured link are sooner.
 *
 * Whom it trusts: the nodes are members. One that lies about the SHA-256 of a tensor is not found
 * here; one that got wrong bytes is. Units, answers and states that were not asked for are refused.
 *
 * Time is monotonic nanoseconds. One thread at a time. */
#pragma once

#include "trust/digest_chain.h"

enum {
    GATHER_NODES = 64,
    GATHER_UNITS = 16384,
    GATHER_FILES = 128, /* of one model */
    GATHER_ROUNDS = 2,
    GATHER_STALL_MS = 20 * 1000,     /* no byte, while others get on: it is lost */
    GATHER_PATIENCE_MS = 180 * 1000, /* no byte of anybody: it has failed */
    GATHER_SHARE_MS = 1000,          /* between two looks at who could help whom */
    GATHER_HELP_MS = 4000,           /* whoever needs less is not helped */
};
#define GATHER_ANYBODY UINT32_MAX
#define GATHER_CHAIN_BYTES                                                                         \
    (UINT64_C(1) << 30) /* of one step of the chain, but for a larger unit                         \
                         */

struct gather_unit {
    uint64_t offset, size; /* of the header or the tensor; never empty */
    uint64_t end;          /* where the file's next unit begins, or it ends */
    uint32_t file;
};

struct gather_options {
    const struct gather_unit *units; /* the caller's, as long as the gathering */
    uint32_t n_units;
    const struct digest *wholes; /* of each file, the hub's; the caller's, too */
    uint32_t n_nodes;
    const uint32_t *owners; /* of each unit: a node, or GATHER_ANYBODY; a header's is not used */
    /* How fast each node gets from others what another has fetched for it; 0: not known, and then
     * nobody helps it. NULL: of none. */
    const uint64_t *peer_bytes_per_s;
};

struct gather;

/* ERROR_INVALID: units that do not cover files, too many, or no node. */
enum error_code gather_new(const struct gather_options *options, uint64_t now_ns,
                           struct gather **out, struct error *err);
void gather_free(struct gather *gather); /* NULL is fine */

/* ---- what to do ---- */
enum gather_kind { GATHER_NOTHING, GATHER_ORDER, GATHER_CHAIN };
struct gather_action {
    enum gather_kind kind;
    uint32_t node;
    uint32_t first, end; /* GATHER_CHAIN: units [first, end), of one file, are added to the state */
    struct digest_chain chain;
};
/* GATHER_ORDER: tell the node which units are its own now (gather_is_of()). */
struct gather_action gather_next(struct gather *gather, uint64_t now_ns);
bool gather_is_of(const struct gather *gather, uint32_t node, uint32_t unit);
/* Whether the unit is a file's header. */
bool gather_is_header(const struct gather_unit *units, uint32_t unit);

/* ---- what happened; false: nobody has asked for that, it is dropped ---- */
/* Bytes of its units that are there, and how fast they come. */
bool gather_told(struct gather *gather, uint64_t now_ns, uint32_t node, uint64_t bytes,
                 uint64_t bytes_per_s);
bool gather_hashed(struct gather *gather, uint64_t now_ns, uint32_t node, uint32_t unit,
                   const struct digest *digest);
bool gather_chained(struct gather *gather, uint64_t now_ns, uint32_t node, uint32_t first,
                    uint32_t end, const struct digest_chain *chain);
void gather_lost(struct gather *gather, uint64_t now_ns, uint32_t node);

/* ---- how it stands ---- */
enum gather_status {
    GATHER_RUNNING,
    GATHER_DONE,   /* every unit is somewhere, and each file has the hub's hash */
    GATHER_WRONG,  /* it has another, or two nodes have different bytes */
    GATHER_FAILED, /* nobody is left, or nothing comes */
};
enum gather_status gather_status(const struct gather *gather);
/* After GATHER_WRONG: nothing counts any more, and all begin anew. False: it was the last round. */
bool gather_again(struct gather *gather, uint64_t now_ns);
uint32_t gather_round(const struct gather *gather); /* from 0 */
/* After GATHER_DONE: of a unit. */
const struct digest *gather_digest(const struct gather *gather, uint32_t unit);
/* A node in whose bytes of the last two rounds there were differences; GATHER_ANYBODY: none. */
uint32_t gather_suspect(const struct gather *gather);

struct gather_progress {
    uint64_t bytes, here; /* of its units, headers among them */
    uint64_t bytes_per_s; /* 0: not known */
    bool is_lost;
};
struct gather_progress gather_progress(const struct gather *gather, uint32_t node);
/* Seconds until all units are there, by the speeds of now; < 0: not known yet. */
double gather_left_s(const struct gather *gather);
