/* What the cluster has agreed on: nodes, links, models, instances and where they run, settings,
 * members.
 *
 * It follows from the log's entries alone: the same entries give the same state, bit for bit, on
 * every node of a version. state_apply() is total: an event that makes no sense (an unknown node, a
 * placement that is too old, bytes that are no event) changes nothing but the count of such events.
 * A snapshot is the state's encoding; decoded and encoded again it is the same bytes, with what a
 * newer version has added.
 *
 * Epochs. Every placement has one, higher than any before it in the whole state; so no two live
 * placements ever share one. Founding anew lifts them to generation << 32, so that the lost voters'
 * last placements cannot meet them either; nor do those that two have proposed after the same one
 * (placed.h).
 * A new placement of an instance that runs becomes `next`, and takes the place of `current` in the
 * event that makes the last of its stages ready: until then the old one serves.
 *
 * Roles. An event that needs an admin (event_kinds.h) counts with its signature alone: proof.h.
 *
 * The structs are protobuf-c's (proto/cluster.proto); read them, change them through events only.
 * Pure; one thread at a time, or any number of readers. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"
#include "cluster/event.h"
#include "cluster/lineage.h"
#include "cluster/recorded.h"
#include "model/rope_stretch.h"

#include <stdbool.h>

struct state {
    Cluster__State *root; /* NULL: empty, as zeroed */
};
void state_deinit(struct state *state); /* leaves it empty */

/* What became of an event. */
struct state_outcome {
    bool applied;
    const char *reason; /* static; why not */
    struct recorded_outcome recorded;
};

/* An event entry of the log. ERROR_NO_MEMORY alone, and then nothing has changed. */
enum error_code state_apply(struct state *state, uint64_t index, const uint8_t *event, size_t size,
                            struct state_outcome *outcome, struct error *err);
/* A members entry of the log (members.h). */
enum error_code state_apply_members(struct state *state, uint64_t index, const uint8_t *bytes,
                                    size_t size, struct state_outcome *outcome, struct error *err);

void state_encode(const struct state *state,
                  struct buffer *out); /* on lack of memory out->failed */
/* Foreign bytes: what no events can have led to is refused (ERROR_INVALID). Replaces what was
 * there; unchanged on errors. */
enum error_code state_decode(struct state *state, const uint8_t *bytes, size_t size,
                             struct error *err);

/* ---- questions; NULL: not there ---- */
const Cluster__NodeRecord *state_node(const struct state *state, const char *id);
const Cluster__NodeRecord *state_node_of_member(const struct state *state,
                                                uint64_t member); /* 0: nobody's */
const Cluster__Device *state_device(const Cluster__NodeRecord *node, const char *id);
const Cluster__Model *state_model(const struct state *state, const char *name);
const Cluster__Instance *state_instance(const struct state *state, const char *id);
/* The one that guesses for it: its draft model's own, while that is loaded or being loaded and has
 * no draft model itself. NULL: none; then its driver opens the draft model. */
const Cluster__Instance *state_draft_instance(const struct state *state,
                                              const Cluster__Instance *instance);
/* No machine has stages of both, as they are placed or are about to be. */
bool state_are_apart(const Cluster__Instance *a, const Cluster__Instance *b);
/* By the 32 bytes of its hash; compared in constant time in the end. What has expired is there
 * until it is revoked. */
const Cluster__Token *state_token(const struct state *state, const uint8_t *hash);
const Cluster__Token *state_token_named(const struct state *state, const char *name);
/* Whether there was ever a token, though it may have been revoked. */
bool state_has_had_tokens(const struct state *state);
/* The alert of that kind (by name) on that subject that is up. */
const Cluster__Alert *state_alert(const struct state *state, const char *kind, const char *subject);
const char *state_setting(const struct state *state, const char *key);
/* Roles began with the first node_role; before, all members are admins. */
bool state_has_roles(const struct state *state);
bool state_is_admin(const struct state *state, const char *id);
uint32_t state_n_admins(const struct state *state);
/* Since there are roles: it is never let in again. The last LIMIT_CLUSTER_REMOVED are known. */
bool state_was_removed(const struct state *state, const char *id);
/* Nothing is to be placed on the node, and what is there moves away: the setting STATE_DRAIN "id"
 * has a value. */
#define STATE_DRAIN "drain/"
bool state_is_drained(const struct state *state, const char *node);
/* Whether instances may be moved for gain: the setting "moves" is not "off". */
bool state_moves(const struct state *state);
uint32_t state_level(const struct state *state); /* the lowest of all admitted nodes; 0 of none */
/* Where the record of who did what ends; zeroed: it has not begun (recorded.h). */
struct audit_end state_audit_end(const struct state *state);
struct lineage state_lineage(const struct state *state);
/* All of its stages are ready; NULL has none. */
bool state_is_ready(const Cluster__Placement *placement);
/* How its model's rotations differ from what the file says; zeroed: they do not. */
struct rope_stretch state_rope(const Cluster__Demand *demand);
/* The newest epoch of an instance; 0: it was never placed, or is not loaded. */
uint64_t state_epoch(const Cluster__Instance *instance);
