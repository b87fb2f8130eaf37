/* The tokens of `medley serve`, which is in no cluster: a file of this machine (0600), with hashes
 * and not the tokens themselves.
 *
 *     {"tokens": [{"name", "hash", "scopes", "created_ms", "expires_ms", "models",
 *                  "requests_per_min", "streams", "tokens_per_day"}, …]}
 *
 * `medley token … --serve` changes it, under a lock; a server that runs sees the change within
 * TOKEN_FILE_LOOK_MS. A damaged file has no tokens: nobody is let in by it. */
#pragma once

#include "api/access.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <yyjson.h>

enum { TOKEN_FILE_LOOK_MS = 100, TOKEN_FILE_BYTES_MAX = 2 * 1024 * 1024 };

struct token_file;

/* `path` NULL: STATE/serve-tokens.json. Copied into `out` of PATH_MAX bytes. */
enum error_code token_file_path(const char *path, char *out, struct error *err);

/* ---- for the server ---- */
/* A file that is not there has no tokens, and may come. ERROR_INVALID: damaged, or open to others;
 * the text says which entry. */
enum error_code token_file_open(const char *path, struct token_file **out, struct error *err);
void token_file_close(struct token_file *file);
bool token_file_exists(const struct token_file *file);
struct api_access token_file_access(struct token_file *file);

/* ---- for the command ---- */
/* What an entry is made of; `models` separated by commas, NULL: all. */
struct token_entry {
    const char *name, *models;
    uint32_t scopes;
    uint64_t expires_s, requests_per_min, streams, tokens_per_day; /* 0: none */
};
/* The text is the token's. ERROR_INVALID: the name is taken, or there are too many. */
enum error_code token_file_create(const char *path, const struct token_entry *entry,
                                  char text[ACCESS_TOKEN_TEXT], struct error *err);
enum error_code token_file_revoke(const char *path, const char *name, struct error *err);
/* As the node lists its own (docs/control.md); to be freed. */
enum error_code token_file_list(const char *path, yyjson_doc **out, struct error *err);
