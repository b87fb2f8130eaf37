/* Events of access tokens.
 *
 * Invariant: tokens are in the order of their hashes, and no two have the same hash or name. They
 * are looked up with every request of the API, so by halves; which hashes are near a guess may be
 * learnt from the time that takes, and helps nobody to find what they are the hashes of. */
#include "cluster/state_impl.h"

#include "base/limits.h"
#include "trust/access_token.h"

#include <assert.h>
#include <string.h>

static int tokens_compare(const Cluster__Token *token, const uint8_t *hash)
{
    assert(token->hash.len == ACCESS_TOKEN_HASH_BYTES);
    return memcmp(token->hash.data, hash, ACCESS_TOKEN_HASH_BYTES);
}

/* Where it is, or would be. */
static size_t tokens_position(const Cluster__State *s, const uint8_t *hash)
{
    size_t low = 0, high = s->n_tokens;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (tokens_compare(s->tokens[middle], hash) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static Cluster__Token *tokens_find(const Cluster__State *s, const uint8_t *hash, size_t *at)
{
    *at = tokens_position(s, hash);
    if (*at == s->n_tokens || !access_token_same(s->tokens[*at]->hash.data, hash))
        return NULL;
    return s->tokens[*at];
}

static const char *check_places(const Cluster__Token *token)
{
    if (token->n_models > LIMIT_ACCESS_TOKEN_BINDINGS ||
        token->n_places > LIMIT_ACCESS_TOKEN_BINDINGS)
        return "the token is bound to too much";
    for (size_t i = 0; i < token->n_models; i++) {
        if (!good_text(token->models[i]))
            return "the token is bound to a model without a name";
    }
    for (size_t i = 0; i < token->n_places; i++) {
        const Cluster__TokenPlace *place = token->places[i];
        if (!good_text(place->node) || (place->device && !good_text(place->device)))
            return "the token is bound to a device without a name";
    }
    return NULL;
}

static const char *check_token(const Cluster__Token *token)
{
    if (!access_token_name_is_valid(token->name))
        return "the token has no valid name";
    if (token->hash.len != ACCESS_TOKEN_HASH_BYTES)
        return "the token has no hash";
    if (!token->scopes || token->scopes & ~(uint32_t)ACCESS_SCOPES_ALL)
        return "the token has no scope, or one that this version does not know";
    if (protobuf_c_message_get_packed_size(&token->base) > LIMIT_ACCESS_TOKEN_BYTES)
        return "the token's record is too large";
    return check_places(token);
}

const char *apply_token_created(Cluster__State *s, Cluster__Event *e)
{
    Cluster__Token *token = e->token_created;
    const char *reason = check_token(token);
    size_t at;
    if (reason)
        return reason;
    for (size_t i = 0; i < s->n_tokens; i++) {
        if (same_text(s->tokens[i]->name, token->name))
            return "there is a token of that name already";
    }
    if (tokens_find(s, token->hash.data, &at))
        return "there is that token already";
    if (s->n_tokens >= LIMIT_ACCESS_TOKENS)
        return "there are too many tokens; revoke some";
    if (!list_reserve(&s->tokens, s->n_tokens))
        return no_memory;
    memmove(s->tokens + at + 1, s->tokens + at, (s->n_tokens - at) * sizeof *s->tokens);
    s->tokens[at] = token;
    s->n_tokens++;
    s->has_tokens_created = true;
    s->tokens_created++;
    e->token_created = NULL;
    assert(s->n_tokens <= LIMIT_ACCESS_TOKENS);
    return NULL;
}

const char *apply_token_revoked(Cluster__State *s, Cluster__Event *e)
{
    const Cluster__TokenHash *revoked = e->token_revoked;
    size_t at;
    if (revoked->hash.len != ACCESS_TOKEN_HASH_BYTES || !tokens_find(s, revoked->hash.data, &at))
        return "there is no such token";
    list_remove(&s->tokens, &s->n_tokens, at);
    return NULL;
}

bool good_tokens(const Cluster__State *s)
{
    if (s->n_tokens > LIMIT_ACCESS_TOKENS || s->n_tokens > s->tokens_created)
        return false;
    for (size_t i = 0; i < s->n_tokens; i++) {
        if (check_token(s->tokens[i]) ||
            (i && tokens_compare(s->tokens[i - 1], s->tokens[i]->hash.data) >= 0))
            return false;
        for (size_t j = 0; j < i; j++) {
            if (same_text(s->tokens[i]->name, s->tokens[j]->name))
                return false;
        }
    }
    return true;
}

/* ---- questions ---- */

const Cluster__Token *state_token(const struct state *state, const uint8_t *hash)
{
    size_t at;
    return state->root ? tokens_find(state->root, hash, &at) : NULL;
}

const Cluster__Token *state_token_named(const struct state *state, const char *name)
{
    for (size_t i = 0; state->root && i < state->root->n_tokens; i++) {
        if (same_text(state->root->tokens[i]->name, name))
            return state->root->tokens[i];
    }
    return NULL;
}

bool state_has_had_tokens(const struct state *state)
{
    return state->root && state->root->tokens_created;
}
