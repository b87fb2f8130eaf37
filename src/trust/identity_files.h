/* Where a node keeps who it is: two PEM files in one folder (secret_files.h says who may read
 * them).
 *
 *     node.key        the node's private key
 *     membership.pem  the authority's certificate, this node's certificate, and the authority's
 *                     private key where this node holds it; while the authority gets a new key,
 *                     the same of that. All in one file, so that a node is in a cluster or is not,
 *                     and never half
 *
 * A file that is there but cannot be read or understood is an error, never a reason to make a new
 * one: the old may come back from a backup, and a new key is a new node. `openssl` reads both
 * files.
 *
 * The folder's path is `identity` in the state folder; no path (NULL or "") keeps nothing: the node
 * is a new one at every start. */
#pragma once

#include "trust/authority.h"

/* The node's key pair, made when there is none yet (*made). */
enum error_code identity_open(const char *folder, struct identity *out, bool *made,
                              struct error *err);

/* Zeroed, and ERROR_NONE, when the node is in no cluster. What it gives has passed
 * membership_check(). */
enum error_code membership_load(const char *folder, const struct identity *identity,
                                struct membership *out, struct error *err);
enum error_code membership_store(const char *folder, const struct membership *membership,
                                 struct error *err);

/* The node leaves its cluster: forgets the membership, and its key pair, since the id of a node
 * that was removed is never admitted again. The next identity_open() makes a new one. */
enum error_code identity_forget(const char *folder, struct error *err);
