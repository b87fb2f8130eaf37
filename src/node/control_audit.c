/* Where the record of who did what ends, and whose ids stand in it; how long it is kept. */
#include "node/control.h"

#include "node/daemon_audit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void control_audit_keep(struct conversation *conversation, uint64_t days)
{
    char value[24];
    Cluster__Setting setting = CLUSTER__SETTING__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    if (!control_require_member(conversation))
        return;
    snprintf(value, sizeof value, "%" PRIu64, days);
    setting.key = (char *)(uintptr_t)AUDIT_DAYS_SETTING;
    setting.value = value;
    event.kind_case = CLUSTER__EVENT__KIND_SETTING_CHANGED;
    event.setting_changed = &setting;
    control_propose(conversation, &event, "keep_days", value);
}

/* The end that the cluster has agreed on, and not that of the files, which are to be compared with
 * it; what is not written yet is waited for by who asks. */
static void put_audit(struct daemon *daemon, yyjson_mut_doc *doc, yyjson_mut_val *root)
{
    const struct audit_end end = state_audit_end(daemon_state(daemon));
    const struct error *failure = daemon_audit_failure(daemon);
    const Cluster__State *state = daemon_state(daemon)->root;
    char hash[DIGEST_TEXT];
    yyjson_mut_obj_add_uint(doc, root, "number", end.number);
    yyjson_mut_obj_add_strcpy(doc, root, "hash", digest_text(&end.hash, hash));
    yyjson_mut_obj_add_uint(doc, root, "keep_days", daemon_audit_days(daemon));
    if (failure)
        yyjson_mut_obj_add_strcpy(doc, root, "problem", failure->text);
    yyjson_mut_val *nodes = yyjson_mut_obj_add_arr(doc, root, "nodes");
    for (size_t i = 0; state && i < state->n_nodes; i++) {
        yyjson_mut_val *node = yyjson_mut_arr_add_obj(doc, nodes);
        yyjson_mut_obj_add_strcpy(doc, node, "id", state->nodes[i]->node->id);
        yyjson_mut_obj_add_strcpy(doc, node, "name", state->nodes[i]->node->name);
    }
}

void control_audit(struct conversation *conversation, yyjson_val *request)
{
    uint64_t days;
    if (!control_number(conversation, request, "keep_days", LIMIT_AUDIT_DAYS_MAX, 0, &days))
        return;
    if (days) {
        control_audit_keep(conversation, days);
        return;
    }
    yyjson_mut_doc *doc;
    yyjson_mut_val *root = control_object(&doc);
    put_audit(conversation->daemon, doc, root);
    control_answer(conversation, doc);
    control_end(conversation);
}
