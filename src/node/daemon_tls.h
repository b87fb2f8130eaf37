/* The API's certificate on a node: an admin derives the API's authority and signs for itself; a
 * plain member asks an admin over their link (sign.h) and keeps what came (trust/api_signed.h).
 * The source of pair_keeper.h. On the loop's thread. */
#pragma once

#include "trust/api_signed.h"

#include "node.pb-c.h"

struct daemon;
struct peer;

/* Zeroed: nothing yet. */
struct daemon_tls {
    struct api_authority authority; /* an admin's, derived … */
    uint64_t authority_of;          /* … from this one (api_authority_version()) */
    bool has_read;                  /* what was kept */
    struct api_signed kept;
    struct served_names kept_names; /* zeroed: not known, it is from before a restart */
    /* the question that is out, or what became of the last */
    EVP_PKEY *key; /* NULL: none is out */
    struct served_names asked_names;
    uint64_t again_ms; /* the next question, at the earliest */
    struct error problem;
};

void daemon_tls_deinit(struct daemon_tls *tls);

/* Its membership has ended: what was signed for it goes. */
void daemon_tls_forget(struct daemon *daemon);

/* Of an admin that is asked: both are DER. */
enum error_code daemon_tls_sign(struct daemon *daemon, const struct peer *peer,
                                const Node__SignRequest *request, struct buffer *certificate,
                                struct buffer *authority, struct error *err);
