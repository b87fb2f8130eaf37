/* Roles at work on this node: who may change the cluster here, and that keys and certificates are
 * where the roles say. On the loop's thread. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"
#include "cluster/event.h"
#include "trust/identity.h"

#include "node.pb-c.h"

#include <stdbool.h>

struct daemon;

/* This node may let others in, remove them and give roles. ERROR_UNSUPPORTED: it is a plain member;
 * the text names those who may. */
enum error_code roles_require_admin(const struct daemon *daemon, struct error *err);
void roles_name_admins(const struct daemon *daemon, struct buffer *out); /* "laptop, attic" */

/* An event for agreement_propose() that gives a role; points into itself and to `id`. */
struct role_change {
    Cluster__Event event;
    Cluster__NodeRole to;
    uint8_t public_key[PUBLIC_KEY_BYTES];
};
enum error_code roles_change(struct daemon *daemon, const char *id, Cluster__Role role,
                             struct role_change *out, struct error *err);
/* Whoever is let in now would be an admin. */
bool roles_are_beginning(const struct daemon *daemon);
void roles_begin(struct daemon *daemon); /* in a cluster that this node has just founded */

/* Keeps the membership on the disk, and uses it from now on. */
enum error_code roles_keep_membership(struct daemon *daemon, struct error *err);
/* Asks an admin for a certificate or the key, of that authority (its public key; NULL: the one in
 * use); what comes is kept. */
void roles_ask(struct daemon *daemon, Node__SignWhat what, const uint8_t *authority);

/* Now and then. A new cluster gets its first admin. An admin that lacks the authority's key, and a
 * plain member whose certificate is to be renewed, ask an admin for it. A node that is no admin any
 * more drops the key. */
void roles_step(struct daemon *daemon);
