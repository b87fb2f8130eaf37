/* What an event adds to the record of who did what (audit/entry.h): part of what the event means,
 * so it never changes, and every node's record is the same.
 *
 *     recorded_prepare(event, &recorded, &err);     // before it is applied, which empties it
 *     ... apply ...
 *     recorded_finish(&recorded, reason, &end);     // numbers and hashes follow from `end`
 *     recorded_clear(&recorded);
 *
 * Recorded is what changes who belongs to the cluster, what it runs and how it is set, whether it
 * was applied or made no sense; and what nodes told (AUDITED). Not recorded is what nodes report
 * all the time: records, links, stages.
 *
 * The record begins with the event after which all admitted nodes know it. Pure; any thread. */
#pragma once

#include "audit/entry.h"
#include "cluster/event.h"

struct recorded {
    uint32_t n;
    struct audit_entry *entries; /* NULL where there are none */
};

/* What became of the record with an event: a part of struct state_outcome. */
struct recorded_outcome {
    bool counts;           /* there is a record */
    bool begins;           /* with this event, … */
    uint64_t generation;   /* … in this generation of the cluster */
    struct audit_end from; /* it ended there before the event … */
    struct audit_end to;   /* … and ends here now */
};

/* ERROR_NO_MEMORY. An event that is not recorded has no entries. */
enum error_code recorded_prepare(const Cluster__Event *event, struct recorded *out,
                                 struct error *err);
/* `reason`: why it made no sense; NULL: it was applied. Sets outcome->to from the rest of it;
 * where nothing counts there are no entries. */
void recorded_finish(struct recorded *recorded, const char *reason,
                     struct recorded_outcome *outcome);
void recorded_clear(struct recorded *recorded);
