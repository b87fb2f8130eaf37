/* The end of the record of who did what: a part of the state. */
#include "cluster/state_impl.h"

#include "audit/seal.h"
#include "base/limits.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>

/* A member may tell what it likes in its own name, but it cannot sign with another's key. */
static bool good_note(const Cluster__Event *e, const Cluster__AuditNote *note)
{
    struct audit_entry entry = {.told = true};
    struct audit_seal seal;
    char signer[NODE_ID_TEXT];
    if (!good_text(note->what))
        return false;
    if (strcmp(note->what, AUDIT_SIGNED) != 0)
        return true;
    audit_text(entry.what, sizeof entry.what, note->what);
    audit_text(entry.subject, sizeof entry.subject, note->subject);
    audit_text(entry.outcome, sizeof entry.outcome, note->outcome);
    if (!seal_of_entry(&entry, &seal) || !seal_is_good(&seal))
        return false;
    seal_signer(&seal, signer);
    return same_text(e->by, signer);
}

const char *apply_audited(Cluster__State *s, Cluster__Event *e)
{
    const Cluster__Audited *audited = e->audited;
    if (!audited->n_notes || audited->n_notes > LIMIT_AUDIT_NOTES)
        return "no notes for the record, or too many at once";
    for (size_t i = 0; i < audited->n_notes; i++) {
        if (!good_note(e, audited->notes[i]))
            return "a note for the record says nothing, or its signature is wrong";
    }
    return NULL;
}

/* ---- around an event ---- */

static Cluster__AuditEnd *new_audit_end(void)
{
    ProtobufCMessage *message = NULL;
    uint8_t *hash = mem_new(DIGEST_BYTES);
    if (!hash ||
        message_decode(&cluster__audit_end__descriptor, (const uint8_t *)"", 0, &message, NULL)) {
        mem_free(hash);
        return NULL;
    }
    Cluster__AuditEnd *end = (Cluster__AuditEnd *)message;
    end->has_number = end->has_hash = true;
    end->hash = (ProtobufCBinaryData){DIGEST_BYTES, hash};
    return end;
}

enum error_code recording_prepare(const Cluster__State *s, const Cluster__Event *e,
                                  struct recording *out, struct error *err)
{
    *out = (struct recording){0};
    if (recorded_prepare(e, &out->recorded, err))
        return ERROR_NO_MEMORY;
    if (!s->audit && !(out->end = new_audit_end()))
        return error_set(err, ERROR_NO_MEMORY, "state: not enough memory for the record");
    return ERROR_NONE;
}

void recording_clear(struct recording *recording)
{
    recorded_clear(&recording->recorded);
    if (recording->end)
        message_free(&recording->end->base);
    *recording = (struct recording){0};
}

void recording_finish(Cluster__State *s, struct recording *recording, struct state_outcome *outcome)
{
    struct recorded_outcome *recorded = &outcome->recorded;
    const struct state state = {s};
    *recorded = (struct recorded_outcome){.counts = s->audit != NULL};
    if (!s->audit && recording->end && state_level(&state) >= EVENT_ROW_AUDITED) {
        recorded->counts = recorded->begins = true;
        recorded->generation = s->generation;
        s->audit = recording->end;
        recording->end = NULL;
    }
    recorded->from = state_audit_end(&state);
    recorded_finish(&recording->recorded, outcome->reason, recorded);
    if (!recorded->counts)
        return;
    s->audit->number = recorded->to.number;
    memcpy(s->audit->hash.data, recorded->to.hash.bytes, DIGEST_BYTES);
}

/* ---- questions ---- */

bool good_audit_end(const Cluster__AuditEnd *end)
{
    return !end || (end->number && end->hash.len == DIGEST_BYTES);
}

struct audit_end state_audit_end(const struct state *state)
{
    struct audit_end end = {0};
    const Cluster__AuditEnd *audit = state->root ? state->root->audit : NULL;
    if (!audit)
        return end;
    assert(audit->hash.len == DIGEST_BYTES);
    end.number = audit->number;
    memcpy(end.hash.bytes, audit->hash.data, DIGEST_BYTES);
    return end;
}
