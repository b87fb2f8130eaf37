#include "cluster/recorded.h"

#include "base/limits.h"
#include "base/mem.h"
#include "trust/access_token.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- what an event is about ---- */

__attribute__((format(printf, 3, 4))) static void
entry_say(struct audit_entry *entry, const char *what, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    audit_text(entry->what, sizeof entry->what, what);
    audit_text(entry->subject, sizeof entry->subject, text);
}

static const char *or_none(const char *text)
{
    return text ? text : "?";
}

static void entry_of_model(const Cluster__Model *model, struct audit_entry *entry)
{
    char manifest[DIGEST_TEXT] = "?";
    struct digest digest;
    if (model->manifest.len == DIGEST_BYTES) {
        memcpy(digest.bytes, model->manifest.data, DIGEST_BYTES);
        digest_text(&digest, manifest);
    }
    entry_say(entry, "model.added", "%.100s, manifest %s", or_none(model->name), manifest);
}

/* "demo, epoch 5, on 9b1d33a0/gpu0 0-11, 4f0c82e1/cpu 12-23": nodes by the first of their digits.
 */
static void entry_of_placement(const Cluster__InstancePlaced *placed, struct audit_entry *entry)
{
    const Cluster__Placement *placement = placed->placement;
    char text[AUDIT_SUBJECT_TEXT];
    const char *what = "instance.placed";
    int n = snprintf(text, sizeof text, "%.64s", or_none(placed->id));
    if (placement) {
        what = placement->by_hand ? "instance.placed_by_hand" : what;
        n += snprintf(text + n, sizeof text - (size_t)n, ", epoch %" PRIu64 ", on",
                      placement->epoch);
    }
    for (size_t i = 0; placement && i < placement->n_stages && n < (int)sizeof text; i++) {
        const Cluster__Stage *stage = placement->stages[i];
        n += snprintf(text + n, sizeof text - (size_t)n, "%s %.8s/%.16s %u-%u", i ? "," : "",
                      or_none(stage->node), or_none(stage->device), stage->first_layer,
                      stage->first_layer + stage->n_layers - 1);
    }
    entry_say(entry, what, "%s", text);
}

/* What a setting is set to is recorded where it is known to be nobody's secret. */
static void entry_of_setting(const Cluster__Setting *setting, struct audit_entry *entry)
{
    static const char *const open[] = {"audit/", "drain/", "moves"};
    const char *key = or_none(setting->key);
    const char *value = setting->value ? setting->value : "";
    bool shown = false;
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        shown |= strncmp(key, open[i], strlen(open[i])) == 0;
    if (!*value)
        entry_say(entry, "setting.cleared", "%.128s", key);
    else
        entry_say(entry, "setting.changed", "%.128s%s%.32s", key, shown ? " = " : "",
                  shown ? value : "");
}

/* The id that `medley token list` shows, which is no secret. */
static const char *token_id_text(const ProtobufCBinaryData *hash, char out[17])
{
    snprintf(out, 17, "?");
    if (hash->len >= 8)
        id_text(hash->data, 8, out);
    return out;
}

static void entry_of_token(const Cluster__Token *token, struct audit_entry *entry)
{
    char id[17];
    entry_say(entry, "token.created", "token %.64s %s:%s%s%s%s%s", or_none(token->name),
              token_id_text(&token->hash, id), token->scopes & ACCESS_READ ? " read" : "",
              token->scopes & ACCESS_GENERATE ? " generate" : "",
              token->scopes & ACCESS_MODELS ? " models" : "",
              token->scopes & ACCESS_ADMIN ? " admin" : "",
              token->n_models || token->n_places ? ", bound" : "");
}

/* False: an event that is not recorded. */
static bool entry_of_event(const Cluster__Event *e, struct audit_entry *entry)
{
    char id[17];
    switch (e->kind_case) {
    case CLUSTER__EVENT__KIND_NODE_JOINED:
        entry_say(entry, "node.joined", "%.100s %.64s", or_none(e->node_joined->name),
                  or_none(e->node_joined->id));
        return true;
    case CLUSTER__EVENT__KIND_NODE_ADMITTED:
        entry_say(entry, "node.admitted", "%.64s", or_none(e->node_admitted->id));
        return true;
    case CLUSTER__EVENT__KIND_NODE_REMOVED:
        entry_say(entry, "node.removed", "%.64s", or_none(e->node_removed->id));
        return true;
    case CLUSTER__EVENT__KIND_MODEL_REGISTERED:
        entry_of_model(e->model_registered, entry);
        return true;
    case CLUSTER__EVENT__KIND_MODEL_FORGOTTEN:
        entry_say(entry, "model.forgotten", "%.128s", or_none(e->model_forgotten->name));
        return true;
    case CLUSTER__EVENT__KIND_INSTANCE_DESIRED:
        entry_say(entry, "instance.wanted", "%.64s, model %.100s", or_none(e->instance_desired->id),
                  or_none(e->instance_desired->model));
        return true;
    case CLUSTER__EVENT__KIND_INSTANCE_TARGET:
        entry_say(entry, e->instance_target->active ? "instance.load" : "instance.unload", "%.128s",
                  or_none(e->instance_target->id));
        return true;
    case CLUSTER__EVENT__KIND_INSTANCE_PLACED:
        entry_of_placement(e->instance_placed, entry);
        return true;
    case CLUSTER__EVENT__KIND_INSTANCE_ABANDONED:
        entry_say(entry, "instance.move_given_up", "%.128s", or_none(e->instance_abandoned->id));
        return true;
    case CLUSTER__EVENT__KIND_INSTANCE_STOPPED:
        entry_say(entry, "instance.removed", "%.128s", or_none(e->instance_stopped->id));
        return true;
    case CLUSTER__EVENT__KIND_SETTING_CHANGED:
        entry_of_setting(e->setting_changed, entry);
        return true;
    case CLUSTER__EVENT__KIND_REFOUNDED:
        entry_say(entry, "cluster.founded_anew", "generation %" PRIu64, e->refounded->generation);
        return true;
    case CLUSTER__EVENT__KIND_NODE_ROLE:
        entry_say(entry, "node.role", "%.64s %s", or_none(e->node_role->id),
                  e->node_role->role == CLUSTER__ROLE__ADMIN ? "admin" : "member");
        return true;
    case CLUSTER__EVENT__KIND_AUTHORITY_ROTATED:
        entry_say(entry, "authority.rotated", "a new key");
        return true;
    case CLUSTER__EVENT__KIND_AUTHORITY_RETIRED:
        entry_say(entry, "authority.retired", "the old key");
        return true;
    case CLUSTER__EVENT__KIND_TOKEN_CREATED:
        entry_of_token(e->token_created, entry);
        return true;
    case CLUSTER__EVENT__KIND_TOKEN_REVOKED:
        entry_say(entry, "token.revoked", "token %s", token_id_text(&e->token_revoked->hash, id));
        return true;
    case CLUSTER__EVENT__KIND_NODE_UPDATED:
    case CLUSTER__EVENT__KIND_LINKS_MEASURED:
    case CLUSTER__EVENT__KIND_STAGE_REPORTED:
    case CLUSTER__EVENT__KIND_MEMORY_STEPPED:
    case CLUSTER__EVENT__KIND_AUDITED: /* its notes are */
    case CLUSTER__EVENT__KIND_ALERT_RAISED:
    case CLUSTER__EVENT__KIND_ALERT_CLEARED:
    case CLUSTER__EVENT__KIND__NOT_SET:
    case _CLUSTER__EVENT__KIND__CASE_IS_INT_SIZE:
        break;
    }
    return false;
}

static void entry_of_note(const Cluster__AuditNote *note, struct audit_entry *entry)
{
    entry->told = true;
    if (note->has_time_ms)
        entry->time_ms = note->time_ms;
    audit_text(entry->what, sizeof entry->what, note->what && *note->what ? note->what : "?");
    audit_text(entry->who, sizeof entry->who, note->who);
    audit_text(entry->subject, sizeof entry->subject, note->subject);
    audit_text(entry->outcome, sizeof entry->outcome, note->outcome);
}

/* ---- around the event ---- */

static void entry_begin(const Cluster__Event *event, struct audit_entry *entry)
{
    *entry = (struct audit_entry){.time_ms = event->time_ms};
    audit_text(entry->node, sizeof entry->node, event->by);
    audit_text(entry->who, sizeof entry->who, event->actor);
}

/* The first place is left for the record's beginning. */
enum error_code recorded_prepare(const Cluster__Event *event, struct recorded *out,
                                 struct error *err)
{
    const Cluster__Audited *audited =
        event->kind_case == CLUSTER__EVENT__KIND_AUDITED ? event->audited : NULL;
    const size_t n_notes = !audited                               ? 1
                           : audited->n_notes < LIMIT_AUDIT_NOTES ? audited->n_notes
                                                                  : LIMIT_AUDIT_NOTES;
    *out = (struct recorded){.entries = mem_new_array(n_notes + 1, sizeof *out->entries)};
    if (!out->entries)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the audit record");
    entry_begin(event, &out->entries[0]);
    for (size_t i = 0; i < n_notes; i++) {
        struct audit_entry *entry = &out->entries[1 + out->n];
        entry_begin(event, entry);
        if (audited)
            entry_of_note(audited->notes[i], entry);
        out->n += audited || entry_of_event(event, entry);
    }
    return ERROR_NONE;
}

/* A note that was refused is recorded as that, without what it says. */
static void entry_conclude(struct audit_entry *entry, const char *reason)
{
    char text[AUDIT_OUTCOME_TEXT];
    if (entry->told && !reason)
        return;
    if (entry->told) {
        entry->told = false;
        entry->subject[0] = entry->who[0] = 0;
        audit_text(entry->what, sizeof entry->what, "record.note_refused");
    }
    snprintf(text, sizeof text, "%s%s", reason ? "refused: " : "done", reason ? reason : "");
    audit_text(entry->outcome, sizeof entry->outcome, text);
}

void recorded_finish(struct recorded *recorded, const char *reason,
                     struct recorded_outcome *outcome)
{
    outcome->to = outcome->from;
    if (!outcome->counts || !recorded->entries) {
        recorded->n = 0;
        return;
    }
    for (uint32_t i = 1; i <= recorded->n; i++)
        entry_conclude(&recorded->entries[i], reason);
    if (outcome->begins) {
        entry_say(&recorded->entries[0], "record.begun", "generation %" PRIu64,
                  outcome->generation);
        entry_conclude(&recorded->entries[0], NULL);
        recorded->n++;
    } else {
        memmove(recorded->entries, recorded->entries + 1, recorded->n * sizeof *recorded->entries);
    }
    for (uint32_t i = 0; i < recorded->n; i++)
        audit_chain(&recorded->entries[i], &outcome->to);
}

void recorded_clear(struct recorded *recorded)
{
    mem_free(recorded->entries);
    *recorded = (struct recorded){0};
}
