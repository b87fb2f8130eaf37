/* A model of a hub that the cluster fetches together, for who waits for it. */
#include "node/control.h"

#include "base/mem.h"
#include "node/gathering.h"

struct control_gathering {
    struct conversation *conversation;
    struct gather_ask *ask;
    void (*named)(struct conversation *conversation, const char *model);
};

static void control_gather_gone(struct conversation *conversation)
{
    struct control_gathering *waiting = conversation->data;
    conversation->data = NULL;
    gathering_cancel(waiting->ask);
    mem_free(waiting);
}

static void control_put_node(const struct gathering_node *node, yyjson_mut_doc *doc,
                             yyjson_mut_val *list)
{
    yyjson_mut_val *object = yyjson_mut_arr_add_obj(doc, list);
    yyjson_mut_obj_add_strcpy(doc, object, "node", node->name);
    yyjson_mut_obj_add_uint(doc, object, "bytes", node->bytes);
    yyjson_mut_obj_add_uint(doc, object, "here", node->here);
    if (node->bytes_per_s)
        yyjson_mut_obj_add_uint(doc, object, "bytes_per_s", node->bytes_per_s);
    if (node->is_lost)
        yyjson_mut_obj_add_bool(doc, object, "lost", true);
    if (node->problem)
        yyjson_mut_obj_add_strcpy(doc, object, "problem", node->problem);
}

static void control_gather_seen(void *self, const struct gathering_seen *seen)
{
    struct control_gathering *waiting = self;
    yyjson_mut_doc *doc;
    yyjson_mut_val *root = control_object(&doc);
    yyjson_mut_obj_add_strcpy(doc, root, "state", seen->state);
    yyjson_mut_val *object = yyjson_mut_obj_add_obj(doc, root, "gathering");
    yyjson_mut_obj_add_strcpy(doc, object, "file", seen->file);
    yyjson_mut_obj_add_uint(doc, object, "bytes", seen->bytes);
    if (seen->forecast_s >= 0) {
        yyjson_mut_obj_add_real(doc, object, "forecast_s", seen->forecast_s);
        yyjson_mut_obj_add_bool(doc, object, "measured", seen->is_forecast_measured);
    }
    yyjson_mut_val *nodes = yyjson_mut_obj_add_arr(doc, object, "nodes");
    for (uint32_t i = 0; i < seen->n_nodes; i++)
        control_put_node(&seen->nodes[i], doc, nodes);
    control_answer(waiting->conversation, doc); /* may hang up */
}

/* Nothing was fetched: the command line can still pull all of it. */
static void control_gather_refuse(struct conversation *conversation, const struct error *err)
{
    if (err->code != ERROR_UNSUPPORTED)
        control_fail(conversation, err);
    else
        control_answer_text(conversation, "pull", err->text);
}

static void control_gather_done(void *self, const char *model, const char *path,
                                const struct error *err)
{
    struct control_gathering *waiting = self;
    struct conversation *conversation = waiting->conversation;
    void (*named)(struct conversation *, const char *) = waiting->named;
    conversation->calls = (struct conversation_calls){0};
    conversation->data = NULL;
    mem_free(waiting);
    if (err)
        control_gather_refuse(conversation, err);
    else if (path)
        control_name_model(conversation, path, named);
    else
        named(conversation, model);
}

void control_gather(struct conversation *conversation, const char *text,
                    void (*named)(struct conversation *conversation, const char *model))
{
    struct error err;
    if (!control_require_member(conversation))
        return;
    struct control_gathering *waiting = mem_new(sizeof *waiting);
    if (!waiting) {
        control_end(conversation);
        return;
    }
    *waiting = (struct control_gathering){.conversation = conversation, .named = named};
    const struct gathering_hearer hearer = {control_gather_seen, control_gather_done, waiting};
    if (gathering_begin(conversation->daemon, text, &conversation->wanted, conversation->actor,
                        &hearer, &waiting->ask, &err)) {
        mem_free(waiting);
        control_fail(conversation, &err);
        return;
    }
    conversation->data = waiting;
    conversation->calls = (struct conversation_calls){.gone = control_gather_gone};
}
