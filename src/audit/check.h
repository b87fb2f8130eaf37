/* Checks a record of who did what, line by line: what was changed, is missing, doubled, out of its
 * place or cut off is found, and named.
 *
 *     audit_check_new(on_finding, arg, &check, err);
 *     audit_check_line(check, line, size);          // the head first, then entries and gaps
 *     ...
 *     audit_check_end(check, &agreed);              // what the cluster's state says; or NULL
 *     audit_check_free(check);
 *
 * What proves what:
 *   - an entry's own hash: that nothing in it was changed by one who does not reckon it anew;
 *   - the hash of the one before: that no entry was replaced, left out, put in or moved, unless all
 *     that follow were reckoned anew, too;
 *   - heads in the record, which leaders signed and all nodes keep: that not even that was done by
 *     one who has not all of their keys;
 *   - the head that goes in front, signed by the node whose record it is: that it is whole;
 *   - the end that the cluster has agreed on: the same against that node itself.
 *
 * Who signed is told and not judged: whoever checks compares the ids with those of the cluster.
 * Foreign bytes: memory is bounded by the limits below, whatever comes. Not thread-safe. */
#pragma once

#include "audit/seal.h"

enum audit_problem {
    AUDIT_NO_HEAD,   /* it does not begin with a signed head */
    AUDIT_DAMAGED,   /* a line that is no entry stands where `first` should */
    AUDIT_CHANGED,   /* its hash does not fit what it says */
    AUDIT_FOREIGN,   /* a line too many: no entry, or another one with a number that was there */
    AUDIT_DOUBLED,   /* the same entry again */
    AUDIT_MISPLACED, /* it stands after later ones */
    AUDIT_MISSING,   /* first to last */
    AUDIT_UNLINKED,  /* it does not follow the one before: one of the two was replaced */
    AUDIT_BAD_SIGNATURE, /* of a head or gap */
    AUDIT_NOT_AS_SIGNED, /* it is not the entry that somebody has signed */
    AUDIT_CUT,           /* first to last are cut off at the end */
    AUDIT_BEYOND,        /* first to last come after the signed head */
    AUDIT_NOT_AS_AGREED, /* it is not the entry that the cluster has agreed on */
};

struct audit_finding {
    enum audit_problem problem;
    uint64_t first, last; /* entries; 0: none can be named */
    uint64_t line;        /* from 1; 0: no line's */
    char text[256];       /* for people: names the entry and the line */
};

struct audit_report { /* what was seen */
    uint64_t n_entries, n_findings;
    uint64_t first, last; /* numbers */
    uint64_t n_signed;    /* entries with heads of leaders that were compared */
    struct audit_seal head;
    bool has_head;
};

struct audit_check;
typedef void (*audit_finding_fn)(void *arg, const struct audit_finding *finding);

enum {
    AUDIT_CHECK_HASHES = 16384,   /* that are remembered, to compare with heads */
    AUDIT_CHECK_RANGES = 1024,    /* missing ones, waiting to turn up */
    AUDIT_CHECK_FINDINGS = 10000, /* then no more are told; they are counted */
};

/* `tail_follows`: entries may come after the head: the record of a node that is running. */
enum error_code audit_check_new(bool tail_follows, audit_finding_fn found, void *arg,
                                struct audit_check **out, struct error *err);
void audit_check_line(struct audit_check *check, const char *line, size_t size);
struct audit_report audit_check_end(struct audit_check *check, const struct audit_end *agreed);
void audit_check_free(struct audit_check *check);
