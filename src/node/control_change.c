/* Answers that several requests give: a text, and what became of a change of the cluster. */
#include "node/control.h"

#include "agreement/agreement.h"
#include "base/mem.h"

#include <stdio.h>

void control_answer_text(struct conversation *conversation, const char *key, const char *text)
{
    yyjson_mut_doc *doc;
    yyjson_mut_val *root = control_object(&doc);
    yyjson_mut_obj_add_strcpy(doc, root, key, text);
    control_answer(conversation, doc);
    control_end(conversation);
}

/* A change of the cluster that a conversation waits for. */
struct change {
    struct conversation *conversation; /* NULL: it has gone */
    yyjson_mut_doc *answer;
    char name[LIMIT_CLUSTER_TEXT_BYTES + 1];
};

static void change_gone(struct conversation *conversation)
{
    ((struct change *)conversation->data)->conversation = NULL;
    conversation->data = NULL;
}

static void control_change_on_changed(void *arg, enum error_code code,
                                      const struct state_outcome *outcome, const struct error *err)
{
    struct change *change = arg;
    struct conversation *conversation = change->conversation;
    struct error why;
    if (conversation)
        conversation->calls = (struct conversation_calls){0};
    if (conversation && code) {
        control_fail(conversation, err);
    } else if (conversation && !outcome->applied) {
        error_set(&why, ERROR_INVALID, "%s: %s", change->name, outcome->reason);
        control_fail(conversation, &why);
    } else if (conversation) {
        control_answer(conversation, change->answer);
        change->answer = NULL;
        control_end(conversation);
    }
    yyjson_mut_doc_free(change->answer);
    mem_free(change);
}

void control_propose(struct conversation *conversation, Cluster__Event *event, const char *key,
                     const char *name)
{
    yyjson_mut_doc *answer;
    yyjson_mut_val *root = control_object(&answer);
    yyjson_mut_obj_add_strcpy(answer, root, key, name);
    control_propose_answer(conversation, event, name, answer);
}

void control_propose_answer(struct conversation *conversation, Cluster__Event *event,
                            const char *name, yyjson_mut_doc *answer)
{
    struct change *change = mem_new(sizeof *change);
    if (!change) {
        yyjson_mut_doc_free(answer);
        control_fail(
            conversation,
            &(struct error){ERROR_NO_MEMORY, "not enough memory for a change of the cluster"});
        return;
    }
    change->conversation = conversation;
    change->answer = answer;
    snprintf(change->name, sizeof change->name, "%s", name);
    conversation->data = change;
    conversation->calls = (struct conversation_calls){.gone = change_gone};
    event->actor = conversation->actor;
    agreement_propose(conversation->daemon->agreement, event, control_change_on_changed, change);
}
