/* Where the record of who did what ends, and whose ids stand in it; how long it is kept. */
#include "node/control.h"

#include "audit/record.h"
#include "base/mem.h"
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

/* ---- the last entries, from this node's disk ---- */

enum { AUDIT_LAST_MAX = 500 };

struct audit_last {
    uv_work_t work;                    /* first */
    struct conversation *conversation; /* NULL: nobody waits for it */
    char folder[PATH_MAX];
    uint64_t from;
    struct buffer lines;
    enum error_code code;
    struct error err;
};

static bool audit_last_line(void *arg, const char *line, size_t size)
{
    struct audit_last *last = arg;
    struct audit_entry entry;
    if (!audit_read_entry(line, size, &entry) || entry.number < last->from)
        return true; /* a head or a gap */
    buffer_append(&last->lines, line, size);
    buffer_text(&last->lines, "\n");
    return !last->lines.failed;
}

static void audit_last_work(uv_work_t *work)
{
    struct audit_last *last = (struct audit_last *)work;
    last->code = record_read(last->folder, last->from, true, audit_last_line, last, &last->err);
    if (!last->code && last->lines.failed)
        last->code = error_set(&last->err, ERROR_NO_MEMORY, "not enough memory for the record");
}

static void audit_last_on_read(uv_work_t *work, int status)
{
    struct audit_last *last = (struct audit_last *)work;
    struct conversation *conversation = last->conversation;
    if (conversation) {
        conversation->calls = (struct conversation_calls){0};
        conversation->data = NULL;
        if (!last->code && last->lines.size)
            control_send(conversation, last->lines.data, last->lines.size);
        if (last->code)
            control_fail(conversation, &last->err);
        else
            control_end(conversation);
    }
    buffer_deinit(&last->lines);
    mem_free(last);
}

static void audit_last_gone(struct conversation *conversation)
{
    struct audit_last *last = conversation->data;
    if (last)
        last->conversation = NULL;
    conversation->data = NULL;
}

static void audit_last_begin(struct conversation *conversation, uint64_t n)
{
    const struct daemon *daemon = conversation->daemon;
    const struct audit_end end = state_audit_end(daemon_state(daemon));
    struct audit_last *last = mem_new(sizeof *last);
    struct error err = {ERROR_NO_MEMORY, "not enough memory for the record"};
    if (last) {
        snprintf(last->folder, sizeof last->folder, "%s/audit", daemon->folder);
        last->from = end.number > n ? end.number - n + 1 : 1;
        last->conversation = conversation;
    }
    if (!last || uv_queue_work(daemon->loop, &last->work, audit_last_work, audit_last_on_read)) {
        mem_free(last);
        control_fail(conversation, &err);
        return;
    }
    conversation->data = last;
    conversation->calls = (struct conversation_calls){.gone = audit_last_gone};
}

void control_audit(struct conversation *conversation, yyjson_val *request)
{
    uint64_t days, last;
    if (!control_number(conversation, request, "keep_days", LIMIT_AUDIT_DAYS_MAX, 0, &days) ||
        !control_number(conversation, request, "last", AUDIT_LAST_MAX, 0, &last))
        return;
    if (last) {
        audit_last_begin(conversation, last);
        return;
    }
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
