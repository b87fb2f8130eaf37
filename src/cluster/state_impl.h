/* The inside of the state, for state*.c alone. */
#pragma once

#include "cluster/state.h"

/* Each returns NULL, or why the event makes no sense; `no_memory` if that is why (nothing has
 * changed then). They take what they keep out of the event, and leave NULL in its place. */
extern const char no_memory[];

const char *apply_node_joined(Cluster__State *s, Cluster__Event *e);
const char *apply_node_admitted(Cluster__State *s, Cluster__Event *e);
const char *apply_node_removed(Cluster__State *s, Cluster__Event *e);
const char *apply_node_role(Cluster__State *s, Cluster__Event *e);
const char *apply_authority_rotated(Cluster__State *s, Cluster__Event *e);
const char *apply_authority_retired(Cluster__State *s, Cluster__Event *e);
const char *apply_node_updated(Cluster__State *s, Cluster__Event *e);
const char *apply_links(Cluster__State *s, Cluster__Event *e);
const char *apply_model_registered(Cluster__State *s, Cluster__Event *e);
const char *apply_model_forgotten(Cluster__State *s, Cluster__Event *e);
const char *apply_setting(Cluster__State *s, Cluster__Event *e);
const char *apply_audited(Cluster__State *s, Cluster__Event *e); /* state_audit.c */

const char *apply_token_created(Cluster__State *s, Cluster__Event *e); /* state_tokens.c */
const char *apply_token_revoked(Cluster__State *s, Cluster__Event *e);
bool good_tokens(const Cluster__State *s); /* of a snapshot */

const char *apply_alert_raised(Cluster__State *s, Cluster__Event *e); /* state_alerts.c */
const char *apply_alert_cleared(Cluster__State *s, Cluster__Event *e);
bool good_alerts(const Cluster__State *s); /* of a snapshot */

const char *apply_instance_desired(Cluster__State *s, Cluster__Event *e);
const char *apply_instance_target(Cluster__State *s, Cluster__Event *e);
const char *apply_instance_placed(Cluster__State *s, Cluster__Event *e);
const char *apply_instance_abandoned(Cluster__State *s, Cluster__Event *e);
const char *apply_instance_stopped(Cluster__State *s, Cluster__Event *e);
const char *apply_stage_reported(Cluster__State *s, Cluster__Event *e);
const char *apply_memory_stepped(Cluster__State *s, Cluster__Event *e);

/* ---- roles: state_roles.c ---- */
bool roles_is_member(const Cluster__State *s, const char *id); /* it was let in */
/* Before there are roles, every member is. */
bool roles_is_admin(const Cluster__State *s, const char *id);
uint32_t roles_n_admins(const Cluster__State *s);
bool roles_was_removed(const Cluster__State *s, const char *id);
/* False: no memory. The oldest gives way at LIMIT_CLUSTER_REMOVED: a list that is full must not
 * keep a node from being removed, and nobody is let in without an admin's signature in any case. */
bool roles_note_removed(Cluster__State *s, const char *id);

/* The record, around what is applied: state_audit.c. Only the first may fail. */
struct recording {
    struct recorded recorded;
    Cluster__AuditEnd *end; /* for a state that has none yet */
};
enum error_code recording_prepare(const Cluster__State *s, const Cluster__Event *e,
                                  struct recording *out, struct error *err);
void recording_finish(Cluster__State *s, struct recording *recording,
                      struct state_outcome *outcome);
void recording_clear(struct recording *recording);
bool good_audit_end(const Cluster__AuditEnd *end); /* of a snapshot; NULL is fine */

/* Stages that lost their node or device have failed. */
void fail_lost_stages(Cluster__State *s);

/* ---- arrays of a message: `list` and `n` of any repeated field ---- */
bool list_reserve(void *list,
                  size_t n); /* place for one more; `list` is the address of the field */
#define LIST_ADD(list, n, item) ((list)[(n)++] = (item))
void list_remove(void *list, size_t *n, size_t i); /* frees the message, keeps the order */

bool good_text(const char *text); /* there, not empty, within its limit */
bool same_text(const char *a, const char *b);
