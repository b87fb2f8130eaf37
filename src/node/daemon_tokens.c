/* Access tokens, as the API asks for them. */
#include "node/daemon_state.h"

#include "base/durable_file.h"
#include "base/log.h"
#include "trust/access_token.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool daemon_find_token(const struct daemon *daemon, const uint8_t *hash, struct access_grant *out)
{
    const Cluster__Token *token = state_token(daemon_state(daemon), hash);
    if (!token)
        return false;
    *out = (struct access_grant){
        .id = access_token_id(hash),
        .scopes = token->scopes,
        .expires_ms = token->expires_ms,
        .is_bound = token->n_models || token->n_places,
        .requests_per_min = token->requests_per_min,
        .streams = token->streams,
        .tokens_per_day = token->tokens_per_day,
    };
    memcpy(out->hash, hash, sizeof out->hash);
    snprintf(out->name, sizeof out->name, "%s", token->name);
    return true;
}

/* Of one's own there is a record in every state but the empty one. */
bool daemon_knows_tokens(const struct daemon *daemon)
{
    return state_node(daemon_state(daemon), daemon->id) != NULL;
}

/* ---- whether there was ever one -------------------------------------------------------------- */

/* The end of the log is applied only when the cluster has a leader. Until then this file says that
 * the API is not open to all. */
static enum error_code tokens_made_path(const char *folder, char path[PATH_MAX], struct error *err)
{
    return durable_path(folder, "tokens-made", "", path, err);
}

bool daemon_folder_has_had_tokens(const char *folder)
{
    char path[PATH_MAX];
    struct error err;
    return tokens_made_path(folder, path, &err) == ERROR_NONE && access(path, F_OK) == 0;
}

bool daemon_has_had_tokens(const struct daemon *daemon)
{
    return daemon->has_had_tokens || state_has_had_tokens(daemon_state(daemon));
}

void daemon_note_tokens(struct daemon *daemon)
{
    char path[PATH_MAX];
    struct error err;
    if (daemon->has_had_tokens || !state_has_had_tokens(daemon_state(daemon)))
        return;
    daemon->has_had_tokens = true;
    if (tokens_made_path(daemon->folder, path, &err) || durable_replace(path, "", 0, &err))
        log_line(LOG_WARN, "node", "tokens: %s", err.text);
}

void daemon_forget_tokens(struct daemon *daemon)
{
    char path[PATH_MAX];
    struct error err;
    if (tokens_made_path(daemon->folder, path, &err) == ERROR_NONE)
        unlink(path);
}

static bool token_has_model(const Cluster__Token *token, const char *model)
{
    for (size_t i = 0; i < token->n_models; i++) {
        if (strcmp(token->models[i], model) == 0)
            return true;
    }
    return !token->n_models;
}

static bool token_has_place(const Cluster__Token *token, const Cluster__Stage *stage)
{
    for (size_t i = 0; i < token->n_places; i++) {
        const Cluster__TokenPlace *place = token->places[i];
        if (strcmp(place->node, stage->node) == 0 &&
            (!place->device || strcmp(place->device, stage->device) == 0))
            return true;
    }
    return false;
}

static bool token_has_places_of(const struct daemon *daemon, const Cluster__Token *token,
                                const char *model, struct error *why)
{
    const Cluster__Instance *instance = state_instance(daemon_state(daemon), model);
    const Cluster__Placement *placement = instance ? instance->current : NULL;
    if (!placement) {
        error_set(
            why, ERROR_INVALID,
            "it is bound to certain machines, and %s is not loaded; have it placed there with "
            "`medley place` or `medley move`",
            model);
        return false;
    }
    for (size_t i = 0; i < placement->n_stages; i++) {
        const Cluster__Stage *stage = placement->stages[i];
        if (token_has_place(token, stage))
            continue;
        error_set(why, ERROR_INVALID, "%s runs on %s/%s, to which the token is not bound", model,
                  daemon_name_of(daemon, stage->node), stage->device);
        return false;
    }
    return true;
}

bool daemon_token_may_use(const struct daemon *daemon, const uint8_t *hash, const char *model,
                          bool lists, struct error *why)
{
    const Cluster__Token *token = state_token(daemon_state(daemon), hash);
    if (!token || !token_has_model(token, model)) {
        error_set(why, ERROR_INVALID, "it is not bound to the model '%s'", model);
        return false;
    }
    return lists || !token->n_places || token_has_places_of(daemon, token, model, why);
}
