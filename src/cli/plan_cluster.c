#include "cli/plan_cluster.h"

#include "cli/daemon.h"
#include "clusterfile/cluster_file.h"

#include <stdlib.h>

/* The answer is a cluster file, and read as one. */
static enum error_code plan_cluster_ask_node(struct daemon_client *client, struct cluster *out,
                                             struct error *err)
{
    yyjson_doc *doc = NULL;
    size_t size = 0;
    daemon_client_hurry(client);
    enum error_code code = daemon_client_send(client, daemon_question("cluster"), err);
    if (!code)
        code = daemon_client_receive(client, &doc, err);
    if (code)
        return code;
    char *text = yyjson_write(doc, 0, &size);
    code = text ? cluster_parse(text, size, out, err)
                : error_set(err, ERROR_NO_MEMORY, "not enough memory for the cluster");
    free(text);
    yyjson_doc_free(doc);
    if (code == ERROR_INVALID) /* of the node, not of the user's words */
        code = err->code = ERROR_INTERNAL;
    return code;
}

enum error_code plan_cluster_ask(struct cluster *out, bool *found, struct error *err)
{
    struct daemon_client *client;
    *out = (struct cluster){0};
    enum error_code code = daemon_client_open(&client, err);
    *found = code != ERROR_NOT_FOUND;
    if (code)
        return code;
    code = plan_cluster_ask_node(client, out, err);
    daemon_client_close(client);
    return code ? error_wrap(err, "the cluster (--here plans for this machine alone)") : ERROR_NONE;
}
