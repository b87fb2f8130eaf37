/* Requests about access tokens. */
#include "node/control.h"

#include "agreement/agreement.h"
#include "base/mem.h"
#include "trust/access_token.h"

#include <stdio.h>
#include <string.h>

/* ---- create ---------------------------------------------------------------------------------- */

/* An event in the making, with what it points at. */
struct token_draft {
    Cluster__Token token;
    Cluster__TokenPlace places[LIMIT_ACCESS_TOKEN_BINDINGS];
    Cluster__TokenPlace *place_list[LIMIT_ACCESS_TOKEN_BINDINGS];
    char *models[LIMIT_ACCESS_TOKEN_BINDINGS];
    uint8_t hash[ACCESS_TOKEN_HASH_BYTES];
    char text[ACCESS_TOKEN_TEXT];
};

/* The node of "NODE" or "NODE/DEVICE", whose name may have a slash in it, and the device. */
static const Cluster__Node *control_find_place(const struct daemon *daemon, const char *text,
                                               const char **device, struct error *err)
{
    char name[LIMIT_CLUSTER_TEXT_BYTES + 1];
    const char *slash = strrchr(text, '/');
    *device = NULL;
    const Cluster__Node *node = control_find_node(daemon, text, err);
    if (node || !slash)
        return node;
    snprintf(name, sizeof name, "%.*s", (int)(slash - text), text);
    node = control_find_node(daemon, name, err);
    if (!node)
        return NULL;
    for (size_t i = 0; i < node->n_devices; i++) {
        if (strcmp(node->devices[i]->id, slash + 1) == 0)
            *device = node->devices[i]->id;
    }
    if (*device)
        return node;
    error_set(err, ERROR_NOT_FOUND, "%s has no device '%s'; `medley nodes` lists them", node->name,
              slash + 1);
    return NULL;
}

static enum error_code draft_places(const struct daemon *daemon, yyjson_val *list,
                                    struct token_draft *draft, struct error *err)
{
    yyjson_val *value;
    size_t i, n;
    if (yyjson_arr_size(list) > LIMIT_ACCESS_TOKEN_BINDINGS)
        return error_set(err, ERROR_INVALID, "a token can be bound to at most %d devices",
                         LIMIT_ACCESS_TOKEN_BINDINGS);
    yyjson_arr_foreach(list, i, n, value)
    {
        const char *text = yyjson_get_str(value), *device;
        const Cluster__Node *node = text ? control_find_place(daemon, text, &device, err) : NULL;
        if (!text)
            return error_set(err, ERROR_INVALID, "places must be texts: NODE or NODE/DEVICE");
        if (!node)
            return err->code;
        cluster__token_place__init(&draft->places[i]);
        draft->places[i].node = node->id;
        draft->places[i].device = (char *)(uintptr_t)device;
        draft->place_list[i] = &draft->places[i];
        draft->token.n_places++;
    }
    draft->token.places = draft->place_list;
    return ERROR_NONE;
}

static enum error_code draft_models(const struct daemon *daemon, yyjson_val *list,
                                    struct token_draft *draft, struct error *err)
{
    yyjson_val *value;
    size_t i, n;
    if (yyjson_arr_size(list) > LIMIT_ACCESS_TOKEN_BINDINGS)
        return error_set(err, ERROR_INVALID, "a token can be bound to at most %d models",
                         LIMIT_ACCESS_TOKEN_BINDINGS);
    yyjson_arr_foreach(list, i, n, value)
    {
        const char *text = yyjson_get_str(value);
        if (!text || !state_model(daemon_state(daemon), text))
            return error_set(err, ERROR_NOT_FOUND,
                             "the cluster has no model '%s'; `medley status` lists them",
                             text ? text : "");
        draft->models[draft->token.n_models++] = (char *)(uintptr_t)text;
    }
    draft->token.models = draft->models;
    return ERROR_NONE;
}

static enum error_code draft_fill(const struct daemon *daemon, yyjson_val *request,
                                  struct token_draft *draft, struct error *err)
{
    char unknown[80] = "";
    const char *name = control_text(request, "name"), *scopes = control_text(request, "scopes");
    Cluster__Token *token = &draft->token;
    cluster__token__init(token);
    if (!access_token_name_is_valid(name))
        return error_set(err, ERROR_INVALID,
                         "a token's name has 1 to %d letters, digits, or . - _ @",
                         LIMIT_ACCESS_TOKEN_NAME_BYTES);
    if (!scopes || !access_scopes_parse(scopes, &token->scopes, unknown, sizeof unknown))
        return error_set(err, ERROR_INVALID,
                         "there is no scope '%s'; scopes are read, generate, models, admin",
                         unknown);
    token->name = (char *)(uintptr_t)name;
    token->has_scopes = token->has_created_ms = token->has_hash = true;
    token->created_ms = daemon_wall_ms();
    enum error_code code = access_token_make(draft->text, draft->hash, err);
    token->hash = (ProtobufCBinaryData){sizeof draft->hash, draft->hash};
    if (!code)
        code = draft_models(daemon, yyjson_obj_get(request, "models"), draft, err);
    return code ? code : draft_places(daemon, yyjson_obj_get(request, "places"), draft, err);
}

static bool draft_limits(struct conversation *conversation, yyjson_val *request,
                         Cluster__Token *token)
{
    uint64_t expires_s, requests, streams;
    if (!control_number(conversation, request, "expires_s", UINT64_C(100) * 365 * 86400, 0,
                        &expires_s) ||
        !control_number(conversation, request, "requests_per_min", 1000000, 0, &requests) ||
        !control_number(conversation, request, "streams", 1000000, 0, &streams) ||
        !control_number(conversation, request, "tokens_per_day", UINT64_C(1) << 53, 0,
                        &token->tokens_per_day))
        return false;
    token->has_expires_ms = expires_s != 0;
    token->expires_ms = expires_s ? token->created_ms + expires_s * 1000 : 0;
    token->has_requests_per_min = requests != 0;
    token->requests_per_min = (uint32_t)requests;
    token->has_streams = streams != 0;
    token->streams = (uint32_t)streams;
    token->has_tokens_per_day = token->tokens_per_day != 0;
    return true;
}

static void control_token_create(struct conversation *conversation, yyjson_val *request)
{
    Cluster__Event event = CLUSTER__EVENT__INIT;
    if (!control_require_admin(conversation))
        return;
    struct token_draft *draft = mem_new(sizeof *draft);
    struct error err = {ERROR_NO_MEMORY, "not enough memory for a token"};
    if (!draft || draft_fill(conversation->daemon, request, draft, &err)) {
        control_fail(conversation, &err);
    } else if (draft_limits(conversation, request, &draft->token)) {
        yyjson_mut_doc *doc;
        yyjson_mut_val *root = control_object(&doc);
        yyjson_mut_obj_add_strcpy(doc, root, "token", draft->text);
        yyjson_mut_obj_add_strcpy(doc, root, "name", draft->token.name);
        event.kind_case = CLUSTER__EVENT__KIND_TOKEN_CREATED;
        event.token_created = &draft->token;
        control_propose_answer(conversation, &event, draft->token.name, doc);
    }
    if (draft)
        explicit_bzero(draft->text, sizeof draft->text);
    mem_free(draft);
}

/* ---- list, revoke ---------------------------------------------------------------------------- */

static void control_put_places(const struct daemon *daemon, yyjson_mut_doc *doc,
                               yyjson_mut_val *object, const Cluster__Token *token)
{
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, object, "places");
    for (size_t i = 0; i < token->n_places; i++) {
        char text[2 * LIMIT_CLUSTER_TEXT_BYTES + 2];
        const Cluster__TokenPlace *place = token->places[i];
        snprintf(text, sizeof text, "%s%s%s", daemon_name_of(daemon, place->node),
                 place->device ? "/" : "", place->device ? place->device : "");
        yyjson_mut_arr_add_strcpy(doc, list, text);
    }
}

/* What is not limited, or lasts, is 0. */
static void control_put_token(const struct daemon *daemon, yyjson_mut_doc *doc,
                              yyjson_mut_val *object, const Cluster__Token *token)
{
    char id[ACCESS_TOKEN_ID_TEXT], scopes[32];
    access_token_id_text(token->hash.data, id);
    access_scopes_text(token->scopes, scopes, sizeof scopes);
    yyjson_mut_obj_add_strcpy(doc, object, "name", token->name);
    yyjson_mut_obj_add_strcpy(doc, object, "id", id);
    yyjson_mut_obj_add_strcpy(doc, object, "scopes", scopes);
    yyjson_mut_obj_add_uint(doc, object, "created_ms", token->created_ms);
    yyjson_mut_obj_add_uint(doc, object, "expires_ms", token->expires_ms);
    yyjson_mut_obj_add_bool(doc, object, "expired",
                            token->expires_ms && daemon_wall_ms() >= token->expires_ms);
    yyjson_mut_val *models = yyjson_mut_obj_add_arr(doc, object, "models");
    for (size_t i = 0; i < token->n_models; i++)
        yyjson_mut_arr_add_strcpy(doc, models, token->models[i]);
    control_put_places(daemon, doc, object, token);
    yyjson_mut_obj_add_uint(doc, object, "requests_per_min", token->requests_per_min);
    yyjson_mut_obj_add_uint(doc, object, "streams", token->streams);
    yyjson_mut_obj_add_uint(doc, object, "tokens_per_day", token->tokens_per_day);
}

static void control_token_list(struct conversation *conversation, yyjson_val *request)
{
    const struct daemon *daemon = conversation->daemon;
    const Cluster__State *root = daemon_state(daemon)->root;
    yyjson_mut_doc *doc;
    yyjson_mut_val *object = control_object(&doc);
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, object, "tokens");
    (void)request;
    for (size_t i = 0; root && i < root->n_tokens; i++)
        control_put_token(daemon, doc, yyjson_mut_arr_add_obj(doc, list), root->tokens[i]);
    control_answer(conversation, doc);
    control_end(conversation);
}

static void control_token_revoke(struct conversation *conversation, yyjson_val *request)
{
    Cluster__TokenHash hash = CLUSTER__TOKEN_HASH__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    const char *name = control_text(request, "name");
    const Cluster__Token *token =
        name ? state_token_named(daemon_state(conversation->daemon), name) : NULL;
    struct error err;
    if (!control_require_admin(conversation))
        return;
    if (!token) {
        error_set(&err, ERROR_NOT_FOUND, "there is no token '%s'; `medley token list` lists them",
                  name ? name : "");
        control_fail(conversation, &err);
        return;
    }
    hash.has_hash = true;
    hash.hash = token->hash;
    event.kind_case = CLUSTER__EVENT__KIND_TOKEN_REVOKED;
    event.token_revoked = &hash;
    control_propose(conversation, &event, "revoked", name);
}

void control_token(struct conversation *conversation, yyjson_val *request)
{
    const char *what = control_text(request, "what");
    struct error err;
    if (!control_require_member(conversation))
        return;
    if (what && strcmp(what, "create") == 0) {
        control_token_create(conversation, request);
    } else if (what && strcmp(what, "list") == 0) {
        control_token_list(conversation, request);
    } else if (what && strcmp(what, "revoke") == 0) {
        control_token_revoke(conversation, request);
    } else {
        error_set(&err, ERROR_INVALID, "`what` must be create, list or revoke");
        control_fail(conversation, &err);
    }
}
