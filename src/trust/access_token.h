/* An access token: what a client of the API shows to be let in.
 *
 * Its text is "medley_" and 58 digits of Crockford's base 32, in lower case: 256 random bits and 32
 * of a checksum, by which a mistyped or cut token is told from one that is not known. Nobody keeps
 * the text. What is kept is the SHA-256 of the random bits. A password needs a slow hash, because
 * few of them are likely; here all 2^256 are equally so, and nobody tries them at any speed.
 *
 * The id of a token, for people and for counting, is the first 8 bytes of its hash.
 * Pure but for access_token_make(); any thread. */
#pragma once

#include "base/error.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    ACCESS_TOKEN_HASH_BYTES = 32,
    ACCESS_TOKEN_ID_TEXT = 17, /* 16 hexadecimal digits */
    ACCESS_TOKEN_TEXT = 66,    /* with the NUL */
};

/* What a token is for. A bit each; the numbers are in the log. */
enum access_scope {
    ACCESS_READ = 1,     /* status, metrics, events */
    ACCESS_GENERATE = 2, /* completions, embeddings, tokens of a text */
    ACCESS_MODELS = 4,   /* add, pull, place, move, unload */
    ACCESS_ADMIN = 8,    /* members, tokens, drain */
    ACCESS_SCOPES_ALL = 15,
};

enum access_token_kind {
    ACCESS_TOKEN_OTHER, /* not one of ours: another service's key, say */
    ACCESS_TOKEN_TYPO,  /* one of ours with a wrong or missing character */
    ACCESS_TOKEN_GOOD,  /* well-formed; whether anybody knows it is another question */
};

/* What a token grants; copied by value. */
struct access_grant {
    uint64_t id; /* access_token_id(); 0: none was needed, and everything is granted */
    uint8_t hash[ACCESS_TOKEN_HASH_BYTES];
    char name[LIMIT_ACCESS_TOKEN_NAME_BYTES + 1];
    uint32_t scopes;
    uint64_t expires_ms; /* since 1970; 0: never */
    bool is_bound;       /* to models, machines or devices: `may_use` decides */
    uint32_t requests_per_min, streams;
    uint64_t tokens_per_day; /* 0: no limit */
};

/* A new token: its text, to be shown once, and its hash. ERROR_INTERNAL: no random numbers. */
enum error_code access_token_make(char text[ACCESS_TOKEN_TEXT],
                                  uint8_t hash[ACCESS_TOKEN_HASH_BYTES], struct error *err);

/* Foreign text of any size; `hash` is set where it is good. */
enum access_token_kind access_token_read(const char *text, size_t size,
                                         uint8_t hash[ACCESS_TOKEN_HASH_BYTES]);

/* In a time that tells nothing of where they differ. */
bool access_token_same(const uint8_t *a, const uint8_t *b);

/* The id: as text, and as a number, which is never 0. */
void access_token_id_text(const uint8_t *hash, char out[ACCESS_TOKEN_ID_TEXT]);
uint64_t access_token_id(const uint8_t *hash);

/* "read,generate" -> bits; false: an unknown or no scope, and `unknown` is what it was ("" for
 * none). */
bool access_scopes_parse(const char *text, uint32_t *scopes, char *unknown, size_t size);
/* The name of one scope; NULL: there is none with that bit. */
const char *access_scope_name(uint32_t scope);
/* Bits -> "read,generate"; cut where `out` is too small (32 bytes hold all). */
void access_scopes_text(uint32_t scopes, char *out, size_t size);

/* 1 to LIMIT_ACCESS_TOKEN_NAME_BYTES letters, digits, and ".-_@": it is shown in logs and tables.
 */
bool access_token_name_is_valid(const char *name);
