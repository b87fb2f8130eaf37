/* What hubs answer, read: a page of a repository's tree, and a manifest. Foreign bytes; pure.
 *
 * Tree: [{"type":"file","path":"…","size":N,"lfs":{"oid":"SHA-256","size":N}}, …], as the hub's
 * API gives it (GET /api/models/ORG/REPO/tree/REVISION?recursive=true). Only GGUF files count, and
 * of them only those whose names could be files here.
 *
 * Manifest: {"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:…",
 * "size":N}, …]} (GET /v2/NAME/manifests/TAG, OCI's distribution specification). */
#pragma once

#include "hub/hub_name.h"
#include "hub/pull_state.h"

enum {
    HUB_ANSWER_BYTES = 16 << 20,
    HUB_FILES_MAX = 4096,
};

struct hub_layer { /* of Ollama's, beside the model's; sha256 "": there is none */
    char sha256[PULL_SHA256];
    uint64_t size;
};

enum { HUB_LAYER_BYTES = 64 << 10 };

struct hub_file {
    char path[HUB_TEXT];             /* hf: in the repository; else the file's name */
    uint64_t size;                   /* bytes; 0: the server says */
    char sha256[PULL_SHA256];        /* "": the hub says none */
    uint32_t left_out;               /* layers of Ollama's that are not used; hub_left_out_text() */
    struct hub_layer params, system; /* what requests begin with (library/defaults.h) */
};
struct hub_files {
    struct hub_file *files;
    uint32_t n;
};

/* Appends. ERROR_INVALID: it is none, or more than HUB_FILES_MAX files. */
enum error_code hub_tree_read(const char *bytes, size_t size, struct hub_files *files,
                              struct error *err);
/* The model's layer; its path is left empty. ERROR_UNSUPPORTED: there is none, or several, or one
 * that would have to be applied to it: an adapter. */
enum error_code hub_manifest_read(const char *bytes, size_t size, struct hub_file *out,
                                  struct error *err);
/* Which layers stay where they are, and what to do about each, as one sentence; nothing where there
 * is none. */
void hub_left_out_text(const struct hub_file *file, struct buffer *out);
void hub_files_deinit(struct hub_files *files);

/* 64 hexadecimal letters. */
bool hub_is_sha256(const char *text);
