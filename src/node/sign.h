/* What needs the authority's key, for members that do not hold it: a member asks an admin that it
 * is linked to, over the link that both have authenticated, and gets the answer back.
 *
 *     SIGN_NODE   a certificate for its own node key          every member
 *     SIGN_KEY    the authority's key itself                  admins alone
 *     SIGN_API    a certificate for its HTTP API              every member; daemon_tls.h signs
 *
 * The one that is asked looks at its own state: the asker's role there counts, not what it says.
 * One question of a kind is out at a time; each admin is asked in turn. On the loop's thread. */
#pragma once

#include "base/error.h"
#include "node.pb-c.h"

#include <stdbool.h>
#include <stddef.h>

struct daemon;
struct frame_header;
struct peer;

enum { SIGN_KINDS = 4, SIGN_WAIT_MS = 5000, SIGN_PAUSE_MS = 200 };

/* `err` NULL: it is signed. Both are good during the call only. */
typedef void (*sign_done_fn)(struct daemon *daemon, const Node__SignAnswer *answer,
                             const struct error *err);

/* A question that is out. Zeroed: none. */
struct sign_question {
    uint64_t id, until_ms;
    char admin[65]; /* who was asked */
    sign_done_fn done;
};

/* `request` is the caller's; its id is set here. ERROR_BUSY: one of its kind is out already;
 * ERROR_NOT_FOUND: no admin is linked, the text names them. Else `done` is called, once. */
enum error_code sign_ask(struct daemon *daemon, Node__SignRequest *request, sign_done_fn done,
                         struct error *err);
void sign_step(struct daemon *daemon); /* now and then: gives up what was not answered */

/* FRAME_SIGN, FRAME_SIGNED. ERROR_INVALID: the peer broke the protocol. */
enum error_code sign_take(struct daemon *daemon, struct peer *peer,
                          const struct frame_header *header, const uint8_t *payload,
                          struct error *err);
