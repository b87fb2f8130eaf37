/* Under which names and addresses an admin signs a certificate for a member's API: those that the
 * cluster's state gives that member, and no other. Pure.
 *
 *     name          signed where it is the member's node name, also under the suffixes of local
 *                   networks (served_names.h)
 *     address       signed where it is among the member's addresses
 *     localhost, 127.0.0.0/8, ::1   signed: they lead to the member itself wherever they are used
 *
 * What another member has, too, is left out: two machines called "pi" are reached by address. What
 * nobody has is left out: a member must not pass as the printer. */
#pragma once

#include "base/error.h"
#include "trust/served_names.h"

struct state;

/* `granted` gets what of `asked` may be signed for the node `id`. ERROR_INVALID: it asks for a name
 * that is another member's and not its own, which no honest node does; ERROR_NOT_FOUND: nothing is
 * left, or the state does not know the node. */
enum error_code api_names_grant(const struct state *state, const char *id,
                                const struct served_names *asked, struct served_names *granted,
                                struct error *err);

/* The same for who asks: what another has is left out instead. */
enum error_code api_names_own(const struct state *state, const char *id,
                              const struct served_names *names, struct served_names *own,
                              struct error *err);
