/* What a part of a node has seen that belongs into the record of who did what, and is no change of
 * the cluster's state: a token's first use, a refusal, a failed join.
 *
 *     audit_tell(&sink, AUDIT_TOKEN_REFUSED, "token ci", "10.0.0.7", "/v1/models",
 *                "it lacks the scope models");
 *
 * Never put a prompt, an answer, a key, a token, a join code or a body into it. Texts are copied,
 * made safe and cut (entry.h). Notes that are alike, of one address, are counted and merged
 * (notes.h), so that telling is cheap whatever a stranger does. Call it on the node's loop. */
#pragma once

#include "audit/entry.h"

#include <stddef.h>

/* What may be told. Also the names in the record: never change or reuse one. */
#define AUDIT_TOKEN_USED "token.used"          /* for the first time */
#define AUDIT_TOKEN_REFUSED "token.refused"    /* a known one: expired, revoked, lacks a scope … */
#define AUDIT_LOGIN_REFUSED "login.refused"    /* no token, or one that nobody made */
#define AUDIT_SESSION_OPENED "session.opened"  /* a browser has signed in */
#define AUDIT_PASS_MADE "pass.made"            /* that signs another browser in */
#define AUDIT_JOIN_FAILED "join.failed"        /* a machine was not let in */
#define AUDIT_JOIN_INVITED "join.invited"      /* a join code was made */
#define AUDIT_PROPOSAL_REFUSED "event.refused" /* a member proposed what it may not */
#define AUDIT_SEVERAL_KINDS "several.kinds"    /* of these, from too many addresses to tell apart */

struct audit_note {
    const char *what;    /* one of the above */
    const char *who;     /* NULL: nobody is known */
    const char *address; /* where it came from, without a port: alike ones are merged; NULL: here */
    const char *subject, *outcome;
};

/* Where a part tells; zeroed: nowhere. */
struct audit_sink {
    void (*note)(void *self, const struct audit_note *note);
    void *self;
};

static inline void audit_tell(const struct audit_sink *sink, const char *what, const char *who,
                              const char *address, const char *subject, const char *outcome)
{
    const struct audit_note note = {what, who, address, subject, outcome};
    if (sink->note)
        sink->note(sink->self, &note);
}
