/* Keeps the pair that an API server shows up to date: from the operator's files, reread when they
 * change, or signed by an authority for the machine's names and addresses, and anew when these
 * change, when the certificate nears its end, or when the authority is another. A source that
 * cannot sign now is asked again; meanwhile the pair stays, or is what the source issued last, or
 * is signed by the machine's own authority.
 *
 * pair_keeper_step() is to be called now and then (KEEPER_STEP_MS). What cannot be renewed stays as
 * it is, and the log says why, once for each reason. Threads: the server's loop. */
#pragma once

#include "trust/api_authority.h"

#include <limits.h>
#include <time.h>

enum { KEEPER_STEP_MS = 2000 };

/* An authority beside the machine's own: the cluster's. `self` outlives the keeper. */
struct pair_source {
    /* Changes with the authority (api_authority_version()); 0: there is none now. NULL: never. */
    uint64_t (*version)(void *self);
    /* ERROR_BUSY: it is on its way; asked again with each step. */
    enum error_code (*issue)(void *self, const struct served_names *names, uint64_t now_unix_s,
                             struct tls_pair *out, struct error *err);
    /* What it has issued last, before a restart; NULL: it keeps nothing. */
    enum error_code (*last)(void *self, uint64_t now_unix_s, struct tls_pair *out,
                            struct error *err);
    /* Which certificate is shown from now on: until when it is good; 0: unknown. NULL: nobody asks.
     */
    void (*shown)(void *self, uint64_t until_unix_s);
    void *self;
};

struct pair_keeper_options {
    const char *certificate_path, *key_path; /* the operator's own; NULL: signed */
    const char *state_folder;                /* NULL or "": nothing is kept */
    const char *host;                        /* numeric, that is listened on */
    const char *node_name;                   /* NULL: the host name alone */
    const char *const *more_names;           /* ended by NULL; NULL: none */
    struct pair_source source;
};

/* Zeroed: nothing to show. */
struct pair_keeper {
    struct pair_keeper_options options; /* what it points to is the caller's */
    struct tls_pair pair;               /* what is shown now */
    struct api_authority own;           /* made when it is first needed */
    struct served_names names;          /* of the pair */
    uint64_t version; /* of the authority that signed it; 0: the machine's own, or the last */
    bool shows_own;   /* the machine's own authority signed it */
    uint64_t until_unix_s;
    struct timespec changed[2]; /* the files, when they were read … */
    int64_t sizes[2];
    uint64_t inodes[2];
    char complaint[256]; /* said last */
};

/* The first pair. After an error the keeper is zeroed. */
enum error_code pair_keeper_init(struct pair_keeper *keeper,
                                 const struct pair_keeper_options *options, uint64_t now_unix_s,
                                 struct error *err);
/* True: keeper->pair is another one now. */
bool pair_keeper_step(struct pair_keeper *keeper, uint64_t now_unix_s);
void pair_keeper_deinit(struct pair_keeper *keeper);
