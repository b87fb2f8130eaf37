/* Requests about who belongs to the cluster. */
#include "node/control.h"

#include "base/mem.h"
#include "join/admission.h"
#include "node/daemon_audit.h"
#include "node/knocks.h"
#include "node/roles.h"
#include "node/rotation.h"

#include <stdio.h>
#include <string.h>

bool control_require_member(struct conversation *conversation)
{
    struct error err;
    if (conversation->daemon->is_member)
        return true;
    error_set(&err, ERROR_BUSY, "this machine is in no cluster yet; `medley join CODE` joins one");
    control_fail(conversation, &err);
    return false;
}

bool control_require_admin(struct conversation *conversation)
{
    struct error err;
    if (!control_require_member(conversation))
        return false;
    if (!roles_require_admin(conversation->daemon, &err))
        return true;
    control_fail(conversation, &err);
    return false;
}

/* The role that a request names; not there: plain. False: there is no such role, and it has been
 * told so. */
static bool take_role(struct conversation *conversation, yyjson_val *request, bool *admin)
{
    const char *role = control_text(request, "role");
    struct error err;
    *admin = role && strcmp(role, "admin") == 0;
    if (!role || *admin || strcmp(role, "member") == 0)
        return true;
    error_set(&err, ERROR_INVALID, "a role is admin or member, not '%.64s'", role);
    control_fail(conversation, &err);
    return false;
}

/* ---- invite ---------------------------------------------------------------------------------- */

void control_invite(struct conversation *conversation, yyjson_val *request)
{
    struct daemon *daemon = conversation->daemon;
    char code[JOIN_CODE_TEXT];
    uint64_t left_ms = 0, minutes;
    bool admin, replaces;
    struct error err;
    if (!control_require_admin(conversation) || !take_role(conversation, request, &admin) ||
        !control_number(conversation, request, "minutes", LIMIT_JOIN_CODE_MS_MAX / 60000, 0,
                        &minutes))
        return;
    replaces = admission_invited(daemon->admission, code, &left_ms);
    if (admission_invite(daemon->admission, (uint32_t)minutes, code, &err)) {
        control_fail(conversation, &err);
        return;
    }
    daemon->code_gives_admin = admin;
    admission_invited(daemon->admission, code, &left_ms);
    snprintf(daemon->inviter, sizeof daemon->inviter, "%s", conversation->actor);
    daemon_note(daemon, AUDIT_JOIN_INVITED, conversation->actor, NULL, "a join code", "made");
    yyjson_mut_doc *doc;
    yyjson_mut_val *root = control_object(&doc);
    yyjson_mut_obj_add_strcpy(doc, root, "code", code);
    yyjson_mut_obj_add_uint(doc, root, "expires_s", left_ms / 1000);
    yyjson_mut_obj_add_str(doc, root, "role", admin ? "admin" : "member");
    yyjson_mut_obj_add_bool(doc, root, "replaces_code", replaces);
    control_answer(conversation, doc);
    control_end(conversation);
}

/* ---- join ------------------------------------------------------------------------------------ */

static void put_compare(struct conversation *conversation, const char *words, const char *key,
                        const char *name, const char *id)
{
    yyjson_mut_doc *doc;
    yyjson_mut_val *root = control_object(&doc);
    yyjson_mut_val *compare = yyjson_mut_obj_add_obj(doc, root, "compare");
    yyjson_mut_obj_add_strcpy(doc, compare, "words", words);
    yyjson_mut_obj_add_strcpy(doc, compare, key, name);
    if (id)
        yyjson_mut_obj_add_strcpy(doc, compare, "id", id);
    control_answer(conversation, doc);
}

static void join_compare(void *self, const char *words, const char *peer_name)
{
    put_compare(self, words, "with", peer_name, NULL);
}

static void join_ended(void *self, const char *through, const struct error *why)
{
    struct conversation *conversation = self;
    struct daemon *daemon = conversation->daemon;
    conversation->calls = (struct conversation_calls){0};
    if (why) {
        control_fail(conversation, why);
        return;
    }
    char id[CLUSTER_ID_TEXT];
    yyjson_mut_doc *doc;
    yyjson_mut_val *root = control_object(&doc);
    yyjson_mut_val *joined = yyjson_mut_obj_add_obj(doc, root, "joined");
    id_text(daemon->membership.authority.cluster_id, CLUSTER_ID_BYTES, id);
    yyjson_mut_obj_add_strcpy(doc, joined, "cluster", id);
    yyjson_mut_obj_add_strcpy(doc, joined, "through", through);
    control_answer(conversation, doc);
    control_end(conversation);
}

static void join_line(struct conversation *conversation, yyjson_val *root)
{
    conversation->calls.line = NULL; /* the first answer counts */
    knocks_answer(conversation->daemon->knocks, yyjson_is_true(yyjson_obj_get(root, "agree")));
}

static void join_gone(struct conversation *conversation)
{
    knocks_forget(conversation->daemon->knocks);
}

void control_join(struct conversation *conversation, yyjson_val *request)
{
    struct knock_events events = {join_compare, join_ended, conversation};
    struct error err;
    yyjson_mut_doc *doc;
    if (!control_hears_more(conversation) && !control_text(request, "code")) {
        error_set(&err, ERROR_INVALID,
                  "a join code is needed; to join by hand run `medley join` on this machine");
        control_fail(conversation, &err);
        return;
    }
    yyjson_mut_val *root = control_object(&doc);
    yyjson_mut_obj_add_bool(doc, root, "searching", true);
    control_answer(conversation, doc);
    if (conversation->closing)
        return;
    conversation->calls = (struct conversation_calls){.line = join_line, .gone = join_gone};
    if (knocks_join(conversation->daemon, control_text(request, "code"),
                    control_text(request, "host"), &events, &err) == ERROR_NONE)
        return;
    conversation->calls = (struct conversation_calls){0};
    control_fail(conversation, &err);
}

/* ---- admit ----------------------------------------------------------------------------------- */

struct admitting {
    uint64_t id; /* admission.h's */
    char node_id[NODE_ID_TEXT];
    char name[JOIN_NAME_TEXT];
    bool agreed;
    uint64_t gone_ms; /* when it was seen first that it waits no longer; 0: it does */
};

enum { DECIDE_MS = 12000 }; /* for the cluster to agree, after both people have */

static void admit_gone(struct conversation *conversation)
{
    mem_free(conversation->data);
    conversation->data = NULL;
}

static bool still_waits(struct daemon *daemon, uint64_t id)
{
    struct admission_waiting waiting[16];
    uint32_t n = admission_list(daemon->admission, waiting, 16);
    for (uint32_t i = 0; i < n && i < 16; i++) {
        if (waiting[i].id == id)
            return true;
    }
    return false;
}

/* The other end agrees, too, and the cluster takes it: or it goes. */
static void admit_look(struct conversation *conversation)
{
    struct admitting *admitting = conversation->data;
    struct daemon *daemon = conversation->daemon;
    const Cluster__NodeRecord *record = state_node(daemon_state(daemon), admitting->node_id);
    const uint64_t now = daemon_now_ms(daemon);
    struct error err;
    if (!admitting->agreed || !daemon->admission)
        return;
    if (record && record->admitted) {
        control_answer_text(conversation, "admitted", admitting->name);
        return;
    }
    if (still_waits(daemon, admitting->id))
        return;
    if (!admitting->gone_ms)
        admitting->gone_ms = now;
    if (now - admitting->gone_ms < DECIDE_MS)
        return;
    error_set(&err, ERROR_CANCELLED, "%s no longer waits: it was refused there, or has gone",
              admitting->name);
    control_fail(conversation, &err);
}

static void admit_agree(struct conversation *conversation)
{
    struct admitting *admitting = conversation->data;
    struct daemon *daemon = conversation->daemon;
    struct error err;
    snprintf(daemon->admitter, sizeof daemon->admitter, "%s", conversation->actor);
    daemon->admitted_channel = admitting->id;
    admitting->agreed = true;
    if (admission_agree(daemon->admission, admitting->id, &err))
        control_fail(conversation, &err);
}

static void admit_line(struct conversation *conversation, yyjson_val *root)
{
    struct admitting *admitting = conversation->data;
    struct daemon *daemon = conversation->daemon;
    struct error err;
    if (admitting->agreed)
        return;
    if (!yyjson_is_true(yyjson_obj_get(root, "agree"))) {
        admission_refuse(daemon->admission, admitting->id,
                         "the words were not the same, or the answer was no", NULL);
        error_set(&err, ERROR_CANCELLED, "%s was not let in", admitting->name);
        control_fail(conversation, &err);
        return;
    }
    admit_agree(conversation);
}

static bool is_named(const struct admission_waiting *waiting, const char *name)
{
    char id[NODE_ID_TEXT];
    id_text(waiting->node_id, NODE_ID_BYTES, id);
    return strcmp(waiting->name, name) == 0 ||
           (strlen(name) >= 8 && strncmp(id, name, strlen(name)) == 0);
}

static enum error_code find_waiting(struct daemon *daemon, const char *name,
                                    struct admission_waiting *out, struct error *err)
{
    struct admission_waiting waiting[16];
    uint32_t n = admission_list(daemon->admission, waiting, 16), found = 0;
    for (uint32_t i = 0; i < n && i < 16; i++) {
        if (!name || is_named(&waiting[i], name))
            *out = waiting[i], found++;
    }
    if (found == 1)
        return ERROR_NONE;
    if (found)
        return error_set(err, ERROR_INVALID, "several machines with that name wait; use the id");
    return error_set(err, ERROR_NOT_FOUND,
                     "no machine '%s' waits to be let in; run `medley up` and `medley join` there",
                     name ? name : "");
}

/* The words that the request names, as a person compared them before: those of the machine that
 * waits now? It stays where it is if not. */
static bool admit_check_words(const struct conversation *conversation, const char *words,
                              const struct admission_waiting *waiting, struct error *err)
{
    if (words && strcasecmp(words, waiting->words) == 0)
        return true;
    if (!words && control_hears_more(conversation))
        return true;
    if (!words)
        error_set(err, ERROR_INVALID,
                  "`words` is missing: the four words that %.64s shows, which a person compares",
                  waiting->name);
    else
        error_set(err, ERROR_INVALID,
                  "those are not the words of the machine %.64s that waits now: compare again with "
                  "what it shows; if they differ, do not let it in",
                  waiting->name);
    return false;
}

void control_admit(struct conversation *conversation, yyjson_val *request)
{
    const char *words = control_text(request, "words");
    struct admission_waiting waiting;
    struct error err;
    if (!control_require_admin(conversation))
        return;
    if (find_waiting(conversation->daemon, control_text(request, "node"), &waiting, &err) ||
        !admit_check_words(conversation, words, &waiting, &err)) {
        control_fail(conversation, &err);
        return;
    }
    struct admitting *admitting = mem_new(sizeof *admitting);
    if (!admitting) {
        control_end(conversation);
        return;
    }
    admitting->id = waiting.id;
    id_text(waiting.node_id, NODE_ID_BYTES, admitting->node_id);
    snprintf(admitting->name, sizeof admitting->name, "%s", waiting.name);
    conversation->data = admitting;
    conversation->calls =
        (struct conversation_calls){.line = admit_line, .look = admit_look, .gone = admit_gone};
    put_compare(conversation, waiting.words, "name", waiting.name, admitting->node_id);
    if (words && !conversation->closing)
        admit_agree(conversation);
}

/* ---- remove, leave --------------------------------------------------------------------------- */

const Cluster__Node *control_find_node(const struct daemon *daemon, const char *name,
                                       struct error *err)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    const Cluster__Node *found = NULL;
    for (size_t i = 0; name && root && i < root->n_nodes; i++) {
        const Cluster__Node *node = root->nodes[i]->node;
        if (strcmp(node->name, name) != 0 &&
            (strlen(name) < 8 || strncmp(node->id, name, strlen(name)) != 0))
            continue;
        if (found) {
            error_set(err, ERROR_INVALID, "several nodes are called %s; use the id", name);
            return NULL;
        }
        found = node;
    }
    if (!found)
        error_set(err, ERROR_NOT_FOUND, "the cluster has no node '%s'; `medley nodes` lists them",
                  name ? name : "");
    return found;
}

void control_remove(struct conversation *conversation, yyjson_val *request)
{
    struct daemon *daemon = conversation->daemon;
    Cluster__NodeName name = CLUSTER__NODE_NAME__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    struct error err;
    if (!control_require_admin(conversation))
        return;
    const Cluster__Node *node = control_find_node(daemon, control_text(request, "node"), &err);
    if (node && strcmp(node->id, daemon->id) == 0) {
        error_set(&err, ERROR_INVALID,
                  "this is that machine; run `medley leave` to take it out of the cluster");
        node = NULL;
    }
    if (!node) {
        control_fail(conversation, &err);
        return;
    }
    name.id = node->id;
    event.kind_case = CLUSTER__EVENT__KIND_NODE_REMOVED;
    event.node_removed = &name;
    yyjson_mut_doc *answer;
    yyjson_mut_val *root = control_object(&answer);
    yyjson_mut_obj_add_strcpy(answer, root, "removed", node->name);
    yyjson_mut_obj_add_bool(answer, root, "was_admin",
                            state_is_admin(daemon_state(daemon), node->id));
    control_propose_answer(conversation, &event, node->name, answer);
}

/* ---- role ---- */

void control_role(struct conversation *conversation, yyjson_val *request)
{
    struct daemon *daemon = conversation->daemon;
    struct error err;
    bool admin;
    if (!control_require_admin(conversation) || !take_role(conversation, request, &admin))
        return;
    const Cluster__Node *node = control_find_node(daemon, control_text(request, "node"), &err);
    struct role_change change;
    if (!node || roles_change(daemon, node->id,
                              admin ? CLUSTER__ROLE__ADMIN : CLUSTER__ROLE__MEMBER, &change, &err))
        control_fail(conversation, &err);
    else
        control_propose(conversation, &change.event, admin ? "admin" : "member", node->name);
}

/* ---- authority ---- */

enum { GRACE_S = 7 * 86400, GRACE_S_MAX = 366 * 86400 };

void control_authority(struct conversation *conversation, yyjson_val *request)
{
    struct daemon *daemon = conversation->daemon;
    const char *what = control_text(request, "what");
    const bool rotates = what && strcmp(what, "rotate") == 0;
    struct rotation_change change;
    struct error err;
    uint64_t grace_s;
    if (!control_require_admin(conversation) ||
        !control_number(conversation, request, "grace_s", GRACE_S_MAX, GRACE_S, &grace_s))
        return;
    if (!rotates && (!what || strcmp(what, "retire") != 0)) {
        error_set(&err, ERROR_INVALID, "`what` must be rotate or retire");
        control_fail(conversation, &err);
        return;
    }
    if (rotates ? rotation_begin(daemon, grace_s * 1000, &change, &err)
                : rotation_retire(daemon, &change, &err))
        control_fail(conversation, &err);
    else
        control_propose(conversation, &change.event, rotates ? "rotated" : "retired",
                        "the cluster's authority");
    rotation_change_deinit(&change);
}

void control_leave(struct conversation *conversation, yyjson_val *request)
{
    struct error err;
    if (daemon_leave(conversation->daemon, conversation->actor, &err))
        control_fail(conversation, &err);
    else
        control_answer_text(conversation, "left", conversation->daemon->name);
}
