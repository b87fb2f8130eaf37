/* A new key for the cluster's authority: `medley authority rotate`.
 *
 *   1. An admin makes it, keeps it, and proposes authority_rotated: the old key signs for the new
 * one.
 *   2. Every node that has the event believes both, and asks an admin for a certificate by the new
 *      one. It goes on showing the old: a member that is away knows that one alone. Admins ask for
 *      the new key.
 *   3. When every member says that it has its certificate, when the time of grace is over, or when
 *      somebody says `medley authority retire`, an admin proposes authority_retired.
 *   4. Then each node shows the new certificate, and believes nothing else. A member that was away
 *      all the time is a stranger now: `medley leave` and `medley join`.
 *
 * On the loop's thread. */
#pragma once

#include "base/error.h"
#include "cluster/event.h"
#include "node/sign.h"
#include "trust/authority.h"
#include "trust/signature.h"

/* Events for agreement_propose(); they point into themselves. */
struct rotation_change {
    Cluster__Event event;
    union {
        Cluster__AuthorityRotated rotated;
        Cluster__AuthorityRetired retired;
    };
    uint8_t public_key[PUBLIC_KEY_BYTES], signature[SIGNATURE_BYTES];
    struct buffer certificate;
};
void rotation_change_deinit(struct rotation_change *change);

/* Also on errors, `out` is to be freed. The new key is on the disk when it returns. */
enum error_code rotation_begin(struct daemon *daemon, uint64_t grace_ms,
                               struct rotation_change *out, struct error *err);
enum error_code rotation_retire(struct daemon *daemon, struct rotation_change *out,
                                struct error *err);

/* Now and then: the next step that this node can take. */
void rotation_step(struct daemon *daemon);

/* A certificate or key from an admin, where it is the new authority's. False: it is not. */
bool rotation_take_certificate(struct daemon *daemon, X509 *certificate);
bool rotation_take_key(struct daemon *daemon, const uint8_t key[AUTHORITY_KEY_BYTES]);
