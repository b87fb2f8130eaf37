/* What an access token costs a request: reading it, hashing it, and finding it among LIMIT of the
 * cluster's, with scopes and limits checked. Beside it the same without a token.
 *
 *     access [-n TOKENS]
 */
#include "api/access.h"
#include "base/clock.h"
#include "cluster/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 21, CALLS = 20000 };

static struct state state;
static char texts[LIMIT_ACCESS_TOKENS][ACCESS_TOKEN_TEXT + 7];

static bool find_token(void *self, const uint8_t *hash, struct access_grant *out)
{
    const Cluster__Token *token = state_token(self, hash);
    *out = (struct access_grant){0};
    if (!token)
        return false;
    memcpy(out->hash, hash, sizeof out->hash);
    out->id = access_token_id(hash);
    out->scopes = token->scopes;
    out->streams = 64;
    out->tokens_per_day = 1000000000;
    snprintf(out->name, sizeof out->name, "%s", token->name);
    return true;
}

static bool is_required(void *self)
{
    return state_has_had_tokens(self);
}

static bool add_token(uint32_t i)
{
    Cluster__Token token = CLUSTER__TOKEN__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    struct buffer bytes = {0};
    struct state_outcome outcome;
    struct error err;
    uint8_t hash[ACCESS_TOKEN_HASH_BYTES];
    char name[32], text[ACCESS_TOKEN_TEXT];
    if (access_token_make(text, hash, &err))
        return false;
    snprintf(texts[i], sizeof texts[i], "Bearer %s", text);
    snprintf(name, sizeof name, "token%u", i);
    token.name = name;
    token.has_hash = token.has_scopes = true;
    token.hash = (ProtobufCBinaryData){sizeof hash, hash};
    token.scopes = ACCESS_GENERATE;
    event.kind_case = CLUSTER__EVENT__KIND_TOKEN_CREATED, event.token_created = &token;
    event_encode(&event, &bytes);
    const bool done = state_apply(&state, i + 1, (const uint8_t *)bytes.data, bytes.size, &outcome,
                                  &err) == ERROR_NONE &&
                      outcome.applied;
    buffer_deinit(&bytes);
    return done;
}

static int compare_ns(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The median of ROUNDS, in ns a request. n_tokens 0: none is shown. */
static double measure(struct access *access, uint32_t n_tokens)
{
    const struct api_client client = {.share = "loopback"};
    struct access_grant grant;
    struct access_refusal refusal;
    double rounds[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t begin = clock_now_ns();
        for (uint32_t i = 0; i < CALLS; i++) {
            const char *shown = n_tokens ? texts[i * 7919 % n_tokens] : NULL;
            if (!access_begin(access, &client, shown, NULL, NULL, ACCESS_GENERATE, i, 1000000 + i,
                              &grant, &refusal)) {
                fprintf(stderr, "refused: %s\n", refusal.err.message);
                exit(1);
            }
            access_end(access, &grant);
        }
        rounds[round] = (double)(clock_now_ns() - begin) / CALLS;
    }
    qsort(rounds, ROUNDS, sizeof *rounds, compare_ns);
    return rounds[ROUNDS / 2];
}

int main(int argc, char **argv)
{
    const struct api_access tokens = {
        .find = find_token, .is_required = is_required, .self = &state};
    uint32_t n = LIMIT_ACCESS_TOKENS;
    if (argc == 3 && strcmp(argv[1], "-n") == 0)
        n = (uint32_t)strtoul(argv[2], NULL, 10);
    if (!n || n > LIMIT_ACCESS_TOKENS)
        return 2;
    for (uint32_t i = 0; i < n; i++) {
        if (!add_token(i))
            return 1;
    }
    struct access *with = access_new(&(struct access_options){.tokens = tokens});
    struct access *without = access_new(&(struct access_options){.is_open = true});
    if (!with || !without)
        return 1;
    const double open_ns = measure(without, 0), token_ns = measure(with, n);
    printf("%u tokens: %.0f ns a request, %.0f ns without a token\n", n, token_ns, open_ns);
    access_free(with);
    access_free(without);
    state_deinit(&state);
    return 0;
}
