#include "audit/check.h"

#include "base/mem.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct check_range { /* of entries that were not met yet */
    uint64_t first, last;
};

struct check_suspect {     /* a line that is no good entry: whose place it has is known later */
    uint64_t line, claims; /* claims: the number that it says; 0: it cannot be read */
};

enum { SUSPECTS_MAX = 1024 };

struct audit_check {
    audit_finding_fn found;
    void *arg;
    bool tail_follows;
    uint64_t line;
    struct audit_report report;
    struct audit_end end;         /* where the record is now */
    bool end_known;               /* its hash */
    struct audit_end jumped_from; /* before the last entry, which was not the next … */
    uint64_t jumped_line;         /* … of this line; 0: it was */
    uint32_t n_ranges, n_suspects;
    uint64_t taken_back[64]; /* entries that were met out of their place, by number */
    uint64_t n_foreign;      /* suspects without a place in the list */
    struct check_range ranges[AUDIT_CHECK_RANGES];
    struct check_suspect suspects[SUSPECTS_MAX];
    struct audit_end hashes[AUDIT_CHECK_HASHES]; /* of the latest entries, by number */
};

/* ---- findings ---- */

__attribute__((format(printf, 6, 7))) static void check_find(struct audit_check *c,
                                                             enum audit_problem problem,
                                                             uint64_t first, uint64_t last,
                                                             uint64_t line, const char *format, ...)
{
    struct audit_finding finding = {.problem = problem, .first = first, .last = last, .line = line};
    va_list args;
    va_start(args, format);
    vsnprintf(finding.text, sizeof finding.text, format, args);
    va_end(args);
    if (++c->report.n_findings <= AUDIT_CHECK_FINDINGS)
        c->found(c->arg, &finding);
}

static const char *check_entries(uint64_t first, uint64_t last, char text[64])
{
    if (first == last)
        snprintf(text, 64, "entry %" PRIu64 " is", first);
    else
        snprintf(text, 64, "entries %" PRIu64 " to %" PRIu64 " are", first, last);
    return text;
}

/* ---- what was there ---- */

static void check_remember(struct audit_check *c, const struct audit_entry *entry)
{
    c->hashes[entry->number % AUDIT_CHECK_HASHES] = (struct audit_end){entry->number, entry->hash};
}

static const struct digest *check_hash_of(const struct audit_check *c, uint64_t number)
{
    const struct audit_end *at = &c->hashes[number % AUDIT_CHECK_HASHES];
    return at->number == number && number ? &at->hash : NULL;
}

static void check_miss(struct audit_check *c, uint64_t first, uint64_t last)
{
    char text[64];
    if (first > last || (first == last && c->taken_back[first % 64] == first))
        return;
    if (c->n_ranges < AUDIT_CHECK_RANGES)
        c->ranges[c->n_ranges++] = (struct check_range){first, last};
    else
        check_find(c, AUDIT_MISSING, first, last, c->line, "%s missing before line %" PRIu64,
                   check_entries(first, last, text), c->line);
}

/* One entry was far ahead, and what follows is not: it alone was out of its place. */
static void check_take_back(struct audit_check *c, uint64_t next)
{
    const uint64_t ahead = c->end.number;
    if (!c->jumped_line || next <= c->jumped_from.number)
        return;
    assert(next < ahead);
    check_find(c, AUDIT_MISPLACED, ahead, ahead, c->jumped_line,
               "entry %" PRIu64 " is out of its place: it stands in line %" PRIu64
               ", before entry %" PRIu64,
               ahead, c->jumped_line, next);
    for (uint32_t i = c->n_ranges; i-- > 0;) {
        if (c->ranges[i].first == c->jumped_from.number + 1 && c->ranges[i].last == ahead - 1)
            c->ranges[i] = c->ranges[--c->n_ranges];
    }
    c->taken_back[ahead % 64] = ahead;
    c->end = c->jumped_from;
    c->end_known = true;
    c->jumped_line = 0;
}

/* A missing entry has turned up. */
static bool check_take_missed(struct audit_check *c, uint64_t number)
{
    for (uint32_t i = 0; i < c->n_ranges; i++) {
        const struct check_range range = c->ranges[i];
        if (number < range.first || number > range.last)
            continue;
        c->ranges[i] = c->ranges[--c->n_ranges];
        if (number > range.first)
            check_miss(c, range.first, number - 1);
        if (number < range.last)
            check_miss(c, number + 1, range.last);
        return true;
    }
    return false;
}

static void check_suspect_line(struct audit_check *c, uint64_t claims)
{
    if (c->n_suspects < SUSPECTS_MAX)
        c->suspects[c->n_suspects++] = (struct check_suspect){c->line, claims};
    else
        c->n_foreign++;
}

/* The next good entry is `next`: so many of the suspects as there are numbers between stood for
 * those, the others are too many. */
static void check_settle_suspects(struct audit_check *c, uint64_t next)
{
    uint64_t number = c->end.number;
    for (uint32_t i = 0; i < c->n_suspects; i++) {
        const struct check_suspect *at = &c->suspects[i];
        if (number + 1 < next) {
            number++;
            check_find(c, at->claims ? AUDIT_CHANGED : AUDIT_DAMAGED, number, number, at->line,
                       at->claims ? "entry %" PRIu64 " (line %" PRIu64
                                    ") was changed: its hash does not fit what it says"
                                  : "entry %" PRIu64 " (line %" PRIu64
                                    ") was damaged: the line is no entry any more",
                       number, at->line);
        } else {
            check_find(c, AUDIT_FOREIGN, next, next, at->line,
                       "line %" PRIu64 ", after entry %" PRIu64 ", was put in: it is no good entry",
                       at->line, number);
        }
    }
    if (c->n_foreign)
        check_find(c, AUDIT_FOREIGN, next, next, 0,
                   "%" PRIu64 " more lines before entry %" PRIu64 " are no entries", c->n_foreign,
                   next);
    if (number + 1 < next)
        check_miss(c, number + 1, next - 1);
    if (number + 1 < next || number != c->end.number)
        c->end_known = false; /* of what stands before `next` the hash is not known */
    c->end.number = next - 1;
    c->n_suspects = 0;
    c->n_foreign = 0;
}

/* ---- lines ---- */

/* A head that a leader has signed, against what stands here. */
static void check_signed_entry(struct audit_check *c, const struct audit_entry *entry)
{
    struct audit_seal seal;
    char signer[NODE_ID_TEXT];
    if (strcmp(entry->what, AUDIT_SIGNED) != 0)
        return;
    if (!seal_of_entry(entry, &seal) || !seal_is_good(&seal)) {
        check_find(c, AUDIT_BAD_SIGNATURE, entry->number, entry->number, c->line,
                   "entry %" PRIu64 " (line %" PRIu64 "): its signature is wrong", entry->number,
                   c->line);
        return;
    }
    seal_signer(&seal, signer);
    const struct digest *hash = check_hash_of(c, seal.last);
    if (!hash)
        return; /* from before this record, or long ago */
    c->report.n_signed++;
    if (digest_equal(hash, &seal.hash) && strcmp(signer, entry->node) == 0)
        return;
    check_find(c, AUDIT_NOT_AS_SIGNED, seal.last, seal.last, c->line,
               "entry %" PRIu64 " is not the one that node %.8s signed (entry %" PRIu64 ")",
               seal.last, signer, entry->number);
}

static void check_late_entry(struct audit_check *c, const struct audit_entry *entry)
{
    const struct digest *hash = check_hash_of(c, entry->number);
    if (check_take_missed(c, entry->number))
        check_find(c, AUDIT_MISPLACED, entry->number, entry->number, c->line,
                   "entry %" PRIu64 " is out of its place: it stands in line %" PRIu64
                   ", after entry %" PRIu64,
                   entry->number, c->line, c->end.number);
    else if (hash && digest_equal(hash, &entry->hash))
        check_find(c, AUDIT_DOUBLED, entry->number, entry->number, c->line,
                   "entry %" PRIu64 " is there again, in line %" PRIu64, entry->number, c->line);
    else
        check_find(c, AUDIT_FOREIGN, entry->number, entry->number, c->line,
                   "line %" PRIu64 " is another entry with the number %" PRIu64, c->line,
                   entry->number);
}

static void check_good_entry(struct audit_check *c, const struct audit_entry *entry)
{
    c->report.n_entries++;
    if (entry->number < c->end.number)
        check_take_back(c, entry->number);
    if (entry->number <= c->end.number) {
        check_late_entry(c, entry);
        return;
    }
    const struct audit_end from = c->end;
    const bool jumps = c->end_known && !c->n_suspects && entry->number > c->end.number + 1;
    check_settle_suspects(c, entry->number);
    c->jumped_from = from;
    c->jumped_line = jumps ? c->line : 0;
    assert(entry->number == c->end.number + 1);
    if (c->end_known && !digest_equal(&entry->before, &c->end.hash))
        check_find(c, AUDIT_UNLINKED, entry->number, entry->number, c->line,
                   "entry %" PRIu64 " (line %" PRIu64 ") does not follow entry %" PRIu64
                   " as it is here: one of the two was replaced",
                   entry->number, c->line, entry->number - 1);
    c->end = (struct audit_end){entry->number, entry->hash};
    c->end_known = true;
    if (!c->report.first)
        c->report.first = entry->number;
    check_remember(c, entry);
    check_signed_entry(c, entry);
}

static void check_gap(struct audit_check *c, const struct audit_seal *seal)
{
    if (!seal_is_good(seal)) {
        check_find(c, AUDIT_BAD_SIGNATURE, seal->first, seal->last, c->line,
                   "line %" PRIu64 ": the signature of the gap from entry %" PRIu64 " to %" PRIu64
                   " is wrong",
                   c->line, seal->first, seal->last);
        return; /* the entries are missing, then */
    }
    if (seal->first <= c->end.number || seal->last < seal->first) {
        check_find(c, AUDIT_FOREIGN, seal->first, seal->last, c->line,
                   "line %" PRIu64 ": a gap from entry %" PRIu64 " on, where entry %" PRIu64
                   " was already",
                   c->line, seal->first, c->end.number);
        return;
    }
    check_settle_suspects(c, seal->first);
    if (c->end_known && !digest_equal(&seal->before, &c->end.hash))
        check_find(c, AUDIT_UNLINKED, seal->first, seal->first, c->line,
                   "the gap in line %" PRIu64 " does not follow entry %" PRIu64
                   " as it is here: that was replaced",
                   c->line, c->end.number);
    c->end = (struct audit_end){seal->last, seal->hash};
    c->end_known = true;
}

static void check_front_head(struct audit_check *c, const struct audit_seal *seal)
{
    if (!seal_is_good(seal)) {
        check_find(c, AUDIT_BAD_SIGNATURE, 0, 0, c->line,
                   "line 1: the signature of the record's head is wrong");
        return;
    }
    c->report.head = *seal;
    c->report.has_head = true;
    c->end = (struct audit_end){seal->first - 1, seal->before};
    c->end_known = true;
}

void audit_check_line(struct audit_check *c, const char *line, size_t size)
{
    struct audit_entry entry;
    struct audit_seal seal;
    struct digest hash;
    c->line++;
    const bool is_seal = audit_read_seal(line, size, &seal);
    if (c->line == 1 && is_seal && seal.type == SEAL_HEAD) {
        check_front_head(c, &seal);
        return;
    }
    if (c->line == 1)
        check_find(c, AUDIT_NO_HEAD, 0, 0, 1,
                   "line 1 is no signed head: nobody says where the record begins and ends");
    if (is_seal && seal.type == SEAL_GAP) {
        check_gap(c, &seal);
        return;
    }
    const bool reads = audit_read_entry(line, size, &entry);
    if (reads)
        audit_hash(&entry, &hash);
    if (!reads || !digest_equal(&hash, &entry.hash))
        check_suspect_line(c, reads ? entry.number : 0);
    else
        check_good_entry(c, &entry);
}

/* ---- the end ---- */

static void check_against_head(struct audit_check *c)
{
    const struct audit_seal *head = &c->report.head;
    char text[64], signer[NODE_ID_TEXT];
    seal_signer(head, signer);
    if (c->end.number < head->last) {
        check_find(c, AUDIT_CUT, c->end.number + 1, head->last, 0,
                   "%s cut off at the end: node %.8s signed a record that ends with entry %" PRIu64,
                   check_entries(c->end.number + 1, head->last, text), signer, head->last);
        return;
    }
    const struct digest *hash =
        c->end.number == head->last && c->end_known ? &c->end.hash : check_hash_of(c, head->last);
    if (hash && !digest_equal(hash, &head->hash))
        check_find(c, AUDIT_NOT_AS_SIGNED, head->last, head->last, 0,
                   "entry %" PRIu64 " is not the one that node %.8s signed as the last", head->last,
                   signer);
    if (c->end.number > head->last && !c->tail_follows)
        check_find(c, AUDIT_BEYOND, head->last + 1, c->end.number, 0,
                   "%s behind the signed end of the record",
                   check_entries(head->last + 1, c->end.number, text));
}

static void check_against_cluster(struct audit_check *c, const struct audit_end *agreed)
{
    char text[64];
    if (c->end.number < agreed->number) {
        check_find(c, AUDIT_CUT, c->end.number + 1, agreed->number, 0,
                   "%s cut off at the end: the cluster's record has %" PRIu64 " entries",
                   check_entries(c->end.number + 1, agreed->number, text), agreed->number);
        return;
    }
    const struct digest *hash = c->end.number == agreed->number && c->end_known
                                    ? &c->end.hash
                                    : check_hash_of(c, agreed->number);
    if (hash && !digest_equal(hash, &agreed->hash))
        check_find(c, AUDIT_NOT_AS_AGREED, agreed->number, agreed->number, 0,
                   "entry %" PRIu64 " is not the one that the cluster has agreed on",
                   agreed->number);
}

struct audit_report audit_check_end(struct audit_check *c, const struct audit_end *agreed)
{
    char text[64];
    uint64_t last = c->end.number;
    if (c->report.has_head && c->report.head.last > last)
        last = c->report.head.last;
    if (agreed && agreed->number > last)
        last = agreed->number;
    if (c->n_suspects || c->n_foreign) { /* they stood for what should be here */
        const uint64_t places = last - c->end.number;
        const uint64_t n = c->n_suspects < places ? c->n_suspects : places;
        check_settle_suspects(c, c->end.number + n + 1);
    }
    for (uint32_t i = 0; i < c->n_ranges; i++)
        check_find(c, AUDIT_MISSING, c->ranges[i].first, c->ranges[i].last, 0, "%s missing",
                   check_entries(c->ranges[i].first, c->ranges[i].last, text));
    c->n_ranges = 0;
    if (!c->line)
        check_find(c, AUDIT_NO_HEAD, 0, 0, 0, "there is no record: not even a signed head");
    if (c->report.has_head)
        check_against_head(c);
    if (agreed)
        check_against_cluster(c, agreed);
    c->report.last = c->end.number;
    return c->report;
}

enum error_code audit_check_new(bool tail_follows, audit_finding_fn found, void *arg,
                                struct audit_check **out, struct error *err)
{
    assert(found);
    *out = mem_new(sizeof **out);
    if (!*out)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to check a record");
    (*out)->tail_follows = tail_follows;
    (*out)->found = found;
    (*out)->arg = arg;
    return ERROR_NONE;
}

void audit_check_free(struct audit_check *check)
{
    mem_free(check);
}
