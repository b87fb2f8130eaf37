/* Notes on their way into the record: counted and merged, so that nobody can fill the record, or
 * push others out of it, by being refused often.
 *
 *     notes_add(notes, now_ms, wall_ms, &note);              // note.h
 *     n = notes_take(notes, now_ms, wall_ms, batch, LIMIT_AUDIT_NOTES);   // to be proposed
 *     notes_give_back(notes, batch, n);                      // the cluster did not take them
 *
 * Of one kind from one address the first LIMIT_AUDIT_ALIKE in LIMIT_AUDIT_WINDOW_MS become entries;
 * then one says how many more there were. While they go on coming the time doubles, up to
 * LIMIT_AUDIT_WINDOW_MS_MAX. All together have LIMIT_AUDIT_BURST, and one more each
 * LIMIT_AUDIT_REFILL_MS; what strangers can cause leaves half of these to the others. Nothing is
 * dropped without being counted. Memory is bounded; pure; one thread. */
#pragma once

#include "audit/note.h"
#include "base/limits.h"

struct audit_notes;

struct told_note {
    uint64_t time_ms;
    char what[AUDIT_WHAT_TEXT];
    char who[AUDIT_WHO_TEXT];
    char subject[AUDIT_SUBJECT_TEXT];
    char outcome[AUDIT_OUTCOME_TEXT];
};

struct audit_notes *notes_new(void); /* NULL: no memory */
void notes_free(struct audit_notes *notes);

void notes_add(struct audit_notes *notes, uint64_t now_ms, uint64_t wall_ms,
               const struct audit_note *note);
/* As it is, once: for the node's own words about the record. */
void notes_add_own(struct audit_notes *notes, const struct told_note *note);
uint32_t notes_take(struct audit_notes *notes, uint64_t now_ms, uint64_t wall_ms,
                    struct told_note *out, uint32_t max);
void notes_give_back(struct audit_notes *notes, const struct told_note *list, uint32_t n);
