#include "cli/live_client.h"

enum {
    LIVE_CLIENT_CHANGES = 4
}; /* two seconds: older versions tell nothing, however long it waits */

static bool live_client_is_whole(const struct live_client *live)
{
    yyjson_mut_obj_iter nodes;
    yyjson_mut_val *key;
    if (live->n_changes >= LIVE_CLIENT_CHANGES)
        return true;
    yyjson_mut_obj_iter_init(yyjson_mut_obj_get(yyjson_mut_doc_get_root(live->view), "nodes"),
                             &nodes);
    while ((key = yyjson_mut_obj_iter_next(&nodes))) {
        yyjson_mut_val *node = yyjson_mut_obj_iter_get_val(key);
        const bool is_up = yyjson_mut_equals_str(yyjson_mut_obj_get(node, "state"), "up");
        if (is_up && !yyjson_mut_obj_size(yyjson_mut_obj_get(node, "load")))
            return false;
    }
    return true;
}

/* A document of its own each time: what was replaced goes with the old one. */
static enum error_code live_client_merge(struct live_client *live, yyjson_val *patch, bool anew,
                                         struct error *err)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *change = doc ? yyjson_val_mut_copy(doc, patch) : NULL;
    yyjson_mut_val *old = live->view ? yyjson_mut_doc_get_root(live->view) : NULL;
    yyjson_mut_val *root = !change ? NULL
                           : anew  ? change
                                   : yyjson_mut_merge_patch(doc, old, change);
    if (!root) {
        yyjson_mut_doc_free(doc);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the cluster's view");
    }
    yyjson_mut_doc_set_root(doc, root);
    yyjson_mut_doc_free(live->view);
    live->view = doc;
    live->n_changes++;
    live->is_whole = live->is_whole || live_client_is_whole(live);
    return ERROR_NONE;
}

enum error_code live_client_take(struct live_client *live, struct daemon_client *client,
                                 bool *changed, struct error *err)
{
    yyjson_doc *line = NULL;
    *changed = false;
    enum error_code code = daemon_client_receive(client, &line, err);
    if (code)
        return code;
    yyjson_val *root = yyjson_doc_get_root(line);
    yyjson_val *snapshot = yyjson_obj_get(root, "snapshot"),
               *change = yyjson_obj_get(root, "change");
    *changed = yyjson_is_obj(snapshot) || (live->view && yyjson_is_obj(change));
    if (*changed)
        code = live_client_merge(live, snapshot ? snapshot : change, snapshot != NULL, err);
    yyjson_doc_free(line);
    return code;
}

enum error_code live_client_begin(struct live_client *live, struct daemon_client *client,
                                  struct error *err)
{
    bool changed;
    enum error_code code = daemon_client_send(client, daemon_question("live"), err);
    while (!code && !live->is_whole)
        code = live_client_take(live, client, &changed, err);
    return code;
}

void live_client_deinit(struct live_client *live)
{
    yyjson_mut_doc_free(live->view);
    *live = (struct live_client){0};
}
