/* This node's part in the record of who did what (audit/record.h): it writes down what the cluster
 * has agreed on, tells what it has seen itself, and signs where it leads. On the loop's thread,
 * but for what is said. */
#pragma once

#include "audit/note.h"
#include "node/daemon_state.h"

/* So many days entries are kept. */
#define AUDIT_DAYS_SETTING "audit/days"

/* Before the cluster's log is opened. */
enum error_code daemon_audit_open(struct daemon *daemon, struct error *err);
/* After it has closed. */
void daemon_audit_close(struct daemon *daemon, void (*closed)(struct daemon *daemon));

void daemon_audit_applied(struct daemon *daemon, const Cluster__Event *event,
                          const struct state_outcome *outcome);
void daemon_audit_changed(struct daemon *daemon); /* another state */
void daemon_audit_tick(struct daemon *daemon);
void daemon_audit_before_snapshot(void *self); /* agreement.h; on the thread pool */

/* Tells daemon_audit_sink(). */
void daemon_note(struct daemon *daemon, const char *what, const char *who, const char *address,
                 const char *subject, const char *outcome);

uint32_t daemon_audit_days(const struct daemon *daemon);               /* that entries are kept */
const struct error *daemon_audit_failure(const struct daemon *daemon); /* NULL: it is written */
