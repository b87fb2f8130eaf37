#include "node/api_names.h"

#include "cluster/state.h"

#include <stdio.h>
#include <string.h>

/* "10.0.0.7:7979" and "[2001:db8::7]:7979", as a node tells where it listens. */
static void api_names_add_address(struct served_names *names, const char *told)
{
    char host[SERVED_ADDRESS_TEXT + 2];
    const bool v6 = told[0] == '[';
    const char *begin = v6 ? told + 1 : told;
    const size_t size = strcspn(begin, v6 ? "]" : ":");
    if (size == 0 || size >= sizeof host)
        return;
    memcpy(host, begin, size);
    host[size] = 0;
    served_names_add(names, host);
}

static void api_names_of_node(const Cluster__Node *node, struct served_names *names)
{
    *names = (struct served_names){0};
    if (node->name)
        served_names_add_machine(names, node->name);
    for (size_t i = 0; i < node->n_addresses; i++)
        api_names_add_address(names, node->addresses[i]);
}

static bool api_names_have(const struct served_names *names, const char *text)
{
    for (uint32_t i = 0; i < names->n_names; i++) {
        if (strcmp(names->names[i], text) == 0)
            return true;
    }
    for (uint32_t i = 0; i < names->n_addresses; i++) {
        if (strcmp(names->addresses[i], text) == 0)
            return true;
    }
    return false;
}

static bool api_names_are_loopback(const char *text)
{
    return strcmp(text, "localhost") == 0 || strcmp(text, "::1") == 0 ||
           (strncmp(text, "127.", 4) == 0 && strspn(text, "0123456789.") == strlen(text));
}

/* Another member that has it, too; NULL: none. */
static const Cluster__Node *api_names_find_other(const struct state *state, const char *id,
                                                 const char *text)
{
    struct served_names theirs;
    for (size_t i = 0; i < state->root->n_nodes; i++) {
        const Cluster__Node *node = state->root->nodes[i]->node;
        if (strcmp(node->id, id) == 0)
            continue;
        api_names_of_node(node, &theirs);
        if (api_names_have(&theirs, text))
            return node;
    }
    return NULL;
}

struct api_names_look {
    const struct state *state;
    const char *id;
    struct served_names own;
    bool forgives;
};

static enum error_code api_names_take(const struct api_names_look *look, const char *text,
                                      bool is_name, struct served_names *granted, struct error *err)
{
    if (api_names_are_loopback(text)) {
        served_names_add(granted, text);
        return ERROR_NONE;
    }
    const bool is_own = api_names_have(&look->own, text);
    const Cluster__Node *other = api_names_find_other(look->state, look->id, text);
    if (is_own && !other)
        served_names_add(granted, text);
    if (other && is_name && !is_own && !look->forgives)
        return error_set(err, ERROR_INVALID, "%s is the name of another node", text);
    return ERROR_NONE;
}

static enum error_code api_names_look(struct api_names_look *look, const struct served_names *asked,
                                      struct served_names *granted, struct error *err)
{
    *granted = (struct served_names){0};
    const Cluster__NodeRecord *record =
        look->state->root ? state_node(look->state, look->id) : NULL;
    if (!record)
        return error_set(err, ERROR_NOT_FOUND, "the cluster does not know this node yet");
    api_names_of_node(record->node, &look->own);
    enum error_code code = ERROR_NONE;
    for (uint32_t i = 0; i < asked->n_names && !code; i++)
        code = api_names_take(look, asked->names[i], true, granted, err);
    for (uint32_t i = 0; i < asked->n_addresses && !code; i++)
        code = api_names_take(look, asked->addresses[i], false, granted, err);
    if (!code && granted->n_names + granted->n_addresses == 0)
        code =
            error_set(err, ERROR_NOT_FOUND, "none of the names and addresses is this node's alone");
    return code;
}

enum error_code api_names_grant(const struct state *state, const char *id,
                                const struct served_names *asked, struct served_names *granted,
                                struct error *err)
{
    struct api_names_look look = {.state = state, .id = id};
    return api_names_look(&look, asked, granted, err);
}

enum error_code api_names_own(const struct state *state, const char *id,
                              const struct served_names *names, struct served_names *own,
                              struct error *err)
{
    struct api_names_look look = {.state = state, .id = id, .forgives = true};
    return api_names_look(&look, names, own, err);
}
