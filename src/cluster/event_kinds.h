/* Which version knows which kind of event, and who may say it: a row each, in the order of their
 * numbers.
 *
 *     X(KIND, since, signed)
 *
 * KIND as in proto/cluster.proto. `since`: FIRST where every version that can be in a cluster knows
 * the kind; LATER where it came afterwards, so that it may be proposed only once the description of
 * every admitted node says that it knows it (state_level()). A new kind is a row at the end, LATER.
 * `signed`: ADMIN where it counts with an admin's signature alone, once there are roles (proof.h);
 * else ANYBODY.
 *
 * A kind of the protocol without a row, a row out of order and a FIRST behind a LATER do not
 * compile (below, and event_level_known()). */
#pragma once

#include "cluster.pb-c.h"

#define EVENT_KINDS(X)                                                                             \
    X(NODE_JOINED, FIRST, ADMIN)                                                                   \
    X(NODE_ADMITTED, FIRST, ADMIN)                                                                 \
    X(NODE_REMOVED, FIRST, ADMIN)                                                                  \
    X(NODE_UPDATED, FIRST, ANYBODY)                                                                \
    X(LINKS_MEASURED, FIRST, ANYBODY)                                                              \
    X(MODEL_REGISTERED, FIRST, ANYBODY)                                                            \
    X(MODEL_FORGOTTEN, FIRST, ANYBODY)                                                             \
    X(INSTANCE_DESIRED, FIRST, ANYBODY)                                                            \
    X(INSTANCE_TARGET, FIRST, ANYBODY)                                                             \
    X(INSTANCE_PLACED, FIRST, ANYBODY)                                                             \
    X(INSTANCE_ABANDONED, FIRST, ANYBODY)                                                          \
    X(STAGE_REPORTED, FIRST, ANYBODY)                                                              \
    X(INSTANCE_STOPPED, FIRST, ANYBODY)                                                            \
    X(SETTING_CHANGED, FIRST, ANYBODY)                                                             \
    X(REFOUNDED, FIRST, ANYBODY)                                                                   \
    X(NODE_ROLE, LATER, ADMIN)                                                                     \
    X(TOKEN_CREATED, LATER, ADMIN)                                                                 \
    X(TOKEN_REVOKED, LATER, ADMIN)                                                                 \
    X(AUDITED, LATER, ANYBODY)                                                                     \
    X(AUTHORITY_ROTATED, LATER, ADMIN)                                                             \
    X(AUTHORITY_RETIRED, LATER, ADMIN)                                                             \
    X(ALERT_RAISED, LATER, ANYBODY)                                                                \
    X(ALERT_CLEARED, LATER, ANYBODY)                                                               \
    X(MEMORY_STEPPED, LATER, ANYBODY)

enum { EVENT_SINCE_LATER, EVENT_SINCE_FIRST };
enum { EVENT_SIGNED_ANYBODY, EVENT_SIGNED_ADMIN };

#define EVENT_ROW(KIND, since, signed) EVENT_ROW_##KIND,
#define EVENT_ROW_IS_FIRST(KIND, since, signed) +EVENT_SINCE_##since
enum {
    /* The fields of an event from here on are its kinds. */
    EVENT_KIND_MIN = CLUSTER__EVENT__KIND_NODE_JOINED,
    EVENT_ROW_BEFORE = EVENT_KIND_MIN - 1,
    EVENT_KINDS(EVENT_ROW) EVENT_ROW_END,
    /* The highest kind that every version knows. */
    EVENT_LEVEL_FIRST = EVENT_ROW_BEFORE EVENT_KINDS(EVENT_ROW_IS_FIRST),
};
#undef EVENT_ROW
#undef EVENT_ROW_IS_FIRST

#define EVENT_ROW_CHECK(KIND, since, signed)                                                       \
    _Static_assert((int)EVENT_ROW_##KIND == (int)CLUSTER__EVENT__KIND_##KIND,                      \
                   "the rows are in the order of their numbers, without a gap");                   \
    _Static_assert((EVENT_ROW_##KIND <= EVENT_LEVEL_FIRST) == EVENT_SINCE_##since,                 \
                   "the kinds that every version knows come first");
EVENT_KINDS(EVENT_ROW_CHECK)
#undef EVENT_ROW_CHECK
