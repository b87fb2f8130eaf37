/* The record of who did what, at work: what the cluster agrees on is written down, what this node
 * has seen is told, and the leader signs where the record ends. */
#include "node/daemon_state.h"

#include "agreement/agreement.h"
#include "audit/notes.h"
#include "audit/record.h"
#include "base/durable_file.h"
#include "base/log.h"
#include "base/mem.h"
#include "node/daemon_audit.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORD_RETRY_MS = 5000 };

struct audit_telling { /* notes on their way to the cluster */
    struct daemon *daemon;
    uint32_t n;
    struct told_note notes[LIMIT_AUDIT_NOTES];
};

struct daemon_audit {
    struct daemon *daemon;
    struct audit_record *record;
    struct audit_notes *notes;
    struct lineage lineage; /* of the log, as it was seen last */
    bool follows;           /* `lineage` is known */

    uv_work_t work;
    bool is_writing;
    struct error failure; /* of the last write */
    uint64_t write_after_ms;

    struct audit_telling *telling; /* NULL: none is under way */
    uint64_t signed_number, signed_ms;
    uint64_t signing_entry; /* the number of the last entry that is a signature */
    void (*closed)(struct daemon *daemon);
};

/* ---- writing, on the thread pool ---- */

static void audit_on_work(uv_work_t *work)
{
    struct daemon_audit *audit = work->data;
    audit->failure = (struct error){0};
    record_flush(audit->record, &audit->failure);
}

static void audit_end_closing(struct daemon_audit *audit)
{
    struct daemon *daemon = audit->daemon;
    void (*closed)(struct daemon *) = audit->closed;
    if (!closed || audit->is_writing || audit->telling)
        return;
    record_close(audit->record);
    notes_free(audit->notes);
    mem_free(audit);
    closed(daemon);
}

static void audit_say_aside(struct daemon_audit *audit)
{
    char path[PATH_MAX];
    struct told_note note = {.time_ms = daemon_wall_ms()};
    record_take_aside(audit->record, path, sizeof path);
    if (!path[0])
        return;
    log_line(LOG_ERROR, "audit",
             "the record of who did what did not fit what the cluster has agreed on, or was "
             "changed; it is kept in %s: `medley audit --verify %s` names what is wrong",
             path, path);
    audit_text(note.what, sizeof note.what, "record.set_aside");
    audit_text(note.subject, sizeof note.subject, strrchr(path, '/') + 1);
    audit_text(note.outcome, sizeof note.outcome,
               "this node's record was changed, or is of a log that was given up");
    notes_add_own(audit->notes, &note);
}

static void audit_on_written(uv_work_t *work, int status)
{
    struct daemon_audit *audit = work->data;
    (void)status;
    audit->is_writing = false;
    if (audit->failure.code) {
        if (!audit->write_after_ms)
            log_line(LOG_ERROR, "audit", "%s", audit->failure.text);
        audit->write_after_ms = daemon_now_ms(audit->daemon) + RECORD_RETRY_MS;
    } else {
        audit->write_after_ms = 0;
        audit_say_aside(audit);
    }
    audit_end_closing(audit);
}

static void audit_write(struct daemon_audit *audit)
{
    if (audit->is_writing || audit->closed || !record_is_due(audit->record) ||
        daemon_now_ms(audit->daemon) < audit->write_after_ms)
        return;
    audit->work.data = audit;
    audit->is_writing =
        uv_queue_work(audit->daemon->loop, &audit->work, audit_on_work, audit_on_written) == 0;
}

void daemon_audit_before_snapshot(void *self)
{
    struct daemon *daemon = self;
    struct error err;
    if (daemon->audit && record_flush(daemon->audit->record, &err))
        log_line(LOG_ERROR, "audit", "%s", err.text);
}

/* ---- what the cluster has agreed on ---- */

void daemon_audit_applied(struct daemon *daemon, const Cluster__Event *event,
                          const struct state_outcome *outcome)
{
    struct daemon_audit *audit = daemon->audit;
    struct recorded recorded;
    struct recorded_outcome again = outcome->recorded;
    struct error err;
    if (!audit || !outcome->recorded.counts)
        return;
    if (recorded_prepare(event, &recorded, &err)) {
        log_line(LOG_ERROR, "audit", "%s", err.text); /* a gap will say so */
        return;
    }
    recorded_finish(&recorded, outcome->reason, &again);
    record_append(audit->record, recorded.entries, recorded.n);
    for (uint32_t i = 0; i < recorded.n; i++) {
        struct audit_seal seal;
        if (!seal_of_entry(&recorded.entries[i], &seal))
            continue;
        audit->signed_number = seal.last;
        audit->signing_entry = recorded.entries[i].number;
        audit->signed_ms = daemon_now_ms(daemon);
    }
    recorded_clear(&recorded);
    audit_write(audit);
}

uint32_t daemon_audit_days(const struct daemon *daemon)
{
    const char *days = state_setting(daemon_state(daemon), AUDIT_DAYS_SETTING);
    const unsigned long n = days ? strtoul(days, NULL, 10) : 0;
    return n && n <= LIMIT_AUDIT_DAYS_MAX ? (uint32_t)n : LIMIT_AUDIT_DAYS;
}

void daemon_audit_changed(struct daemon *daemon)
{
    struct daemon_audit *audit = daemon->audit;
    const struct state *state = daemon_state(daemon);
    const struct audit_end agreed = state_audit_end(state);
    const struct lineage lineage = state_lineage(state);
    if (!audit || !agreed.number)
        return;
    const bool anew = audit->follows && (lineage.generation != audit->lineage.generation ||
                                         lineage.founder != audit->lineage.founder);
    record_follow(audit->record, &agreed, anew);
    record_keep_days(audit->record, daemon_audit_days(daemon));
    audit->lineage = lineage;
    audit->follows = true;
    audit_write(audit);
}

const struct error *daemon_audit_failure(const struct daemon *daemon)
{
    return daemon->audit && daemon->audit->write_after_ms ? &daemon->audit->failure : NULL;
}

/* ---- what this node tells ---- */

static void audit_on_note(void *self, const struct audit_note *note)
{
    struct daemon *daemon = self;
    if (daemon->audit)
        notes_add(daemon->audit->notes, daemon_now_ms(daemon), daemon_wall_ms(), note);
}

struct audit_sink daemon_audit_sink(struct daemon *daemon)
{
    return (struct audit_sink){audit_on_note, daemon};
}

void daemon_note(struct daemon *daemon, const char *what, const char *who, const char *address,
                 const char *subject, const char *outcome)
{
    const struct audit_sink sink = daemon_audit_sink(daemon);
    audit_tell(&sink, what, who, address, subject, outcome);
}

static void audit_on_told(void *arg, enum error_code code, const struct state_outcome *outcome,
                          const struct error *err)
{
    struct audit_telling *telling = arg;
    struct daemon_audit *audit = telling->daemon->audit;
    assert(audit->telling == telling);
    if (code) {
        log_line(LOG_DEBUG, "audit", "%s", err->text);
        notes_give_back(audit->notes, telling->notes, telling->n);
    }
    audit->telling = NULL;
    mem_free(telling);
    audit_end_closing(audit);
}

static void audit_propose(struct daemon_audit *audit, struct audit_telling *telling)
{
    Cluster__AuditNote notes[LIMIT_AUDIT_NOTES], *list[LIMIT_AUDIT_NOTES];
    Cluster__Audited audited = CLUSTER__AUDITED__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    for (uint32_t i = 0; i < telling->n; i++) {
        struct told_note *told = &telling->notes[i];
        cluster__audit_note__init(&notes[i]);
        notes[i].has_time_ms = true;
        notes[i].time_ms = told->time_ms;
        notes[i].what = told->what;
        notes[i].who = told->who;
        notes[i].subject = told->subject;
        notes[i].outcome = told->outcome;
        list[i] = &notes[i];
    }
    audited.n_notes = telling->n;
    audited.notes = list;
    event.kind_case = CLUSTER__EVENT__KIND_AUDITED;
    event.audited = &audited;
    audit->telling = telling;
    agreement_propose(audit->daemon->agreement, &event, audit_on_told, telling);
}

/* Where the record ends now, signed by this node; the leader's word for all. */
static bool audit_sign(struct daemon_audit *audit, struct told_note *out)
{
    struct daemon *daemon = audit->daemon;
    const struct audit_end end = state_audit_end(daemon_state(daemon));
    const uint64_t now_ms = daemon_now_ms(daemon);
    const bool is_due = !audit->signed_ms ||
                        end.number >= audit->signed_number + LIMIT_AUDIT_SEAL_ENTRIES ||
                        now_ms - audit->signed_ms >= LIMIT_AUDIT_SEAL_MS;
    if (!end.number || end.number <= audit->signing_entry || !is_due ||
        !agreement_status(daemon->agreement).leads)
        return false;
    struct audit_seal seal = {.type = SEAL_HEAD,
                              .first = 1,
                              .last = end.number,
                              .hash = end.hash,
                              .time_ms = daemon_wall_ms()};
    struct audit_entry entry = {.told = true};
    struct error err;
    if (seal_sign(&seal, &daemon->identity, &err)) {
        log_line(LOG_WARN, "audit", "%s", err.text);
        return false;
    }
    seal_to_entry(&seal, &entry);
    *out = (struct told_note){.time_ms = seal.time_ms};
    audit_text(out->what, sizeof out->what, entry.what);
    audit_text(out->subject, sizeof out->subject, entry.subject);
    audit_text(out->outcome, sizeof out->outcome, entry.outcome);
    audit->signed_ms = now_ms; /* tried; its entry says the same again */
    return true;
}

void daemon_audit_tick(struct daemon *daemon)
{
    struct daemon_audit *audit = daemon->audit;
    if (!audit || audit->closed)
        return;
    audit_write(audit);
    if (audit->telling || !state_audit_end(daemon_state(daemon)).number)
        return;
    struct audit_telling *telling = mem_new(sizeof *telling);
    if (!telling)
        return;
    telling->daemon = daemon;
    telling->n = notes_take(audit->notes, daemon_now_ms(daemon), daemon_wall_ms(), telling->notes,
                            LIMIT_AUDIT_NOTES - 1);
    telling->n += audit_sign(audit, &telling->notes[telling->n]);
    if (telling->n)
        audit_propose(audit, telling);
    else
        mem_free(telling);
}

/* ---- opening and closing ---- */

enum error_code daemon_audit_open(struct daemon *daemon, struct error *err)
{
    char path[PATH_MAX];
    struct daemon_audit *audit = mem_new(sizeof *audit);
    enum error_code code = durable_path(daemon->folder, "audit", "", path, err);
    if (!code && (!audit || !(audit->notes = notes_new())))
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for the audit record");
    if (!code)
        code = record_open(path, &daemon->identity, &audit->record, err);
    if (code) {
        if (audit)
            notes_free(audit->notes);
        mem_free(audit);
        return code;
    }
    audit->daemon = daemon;
    daemon->audit = audit;
    audit_say_aside(audit);
    return ERROR_NONE;
}

/* When the cluster's log has closed: nothing comes from it any more. */
void daemon_audit_close(struct daemon *daemon, void (*closed)(struct daemon *daemon))
{
    struct daemon_audit *audit = daemon->audit;
    daemon->audit = NULL;
    audit->closed = closed;
    audit_end_closing(audit);
}
