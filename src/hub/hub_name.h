/* What a user writes for a model that is somewhere else, taken apart. Pure.
 *
 *     hf:ORG/REPO[:QUANT]        a repository of Hugging Face's hub, or of a mirror (HF_ENDPOINT)
 *     hf:ORG/REPO/FILE.gguf      one file of it; of a model in parts any of them
 *     ollama:NAME[:TAG]          a model of Ollama's registry: NAME, USER/NAME or HOST/USER/NAME
 *     https://HOST/…/FILE.gguf   a file; http:// too, where http_url_check() lets it
 *
 * Anything else is a path. No part of a name may lead out of a folder: ".", ".." and names with
 * other letters than A-Z a-z 0-9 . _ - are refused. */
#pragma once

#include "base/error.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum hub_kind { HUB_PATH, HUB_HF, HUB_OLLAMA, HUB_URL };
enum { HUB_TEXT = 256, HUB_URL_TEXT = 2048 };

struct hub_name {
    enum hub_kind kind;
    char owner[HUB_TEXT]; /* hf: ORG; ollama: USER, "library" where none is said */
    char model[HUB_TEXT]; /* hf: REPO; ollama: NAME */
    char file[HUB_TEXT];  /* hf: a file, with its folders; url: the last of its path; else "" */
    char tag[HUB_TEXT];   /* hf: QUANT or ""; ollama: TAG, "latest" where none is said */
    char host[HUB_TEXT];  /* ollama: a registry that was named, else ""; url: HOST[:PORT] */
    char url[HUB_URL_TEXT];
};

/* Whether the word is a name of the above rather than a path. */
bool hub_name_is_one(const char *word);
/* ERROR_INVALID: it begins like one and is none. */
enum error_code hub_name_parse(const char *word, struct hub_name *out, struct error *err);

/* A piece of a name that may be a folder or a file. */
bool hub_name_piece_holds(const char *text, size_t size);

/* Of "…-00002-of-00003.gguf" the part (from 1), how many there are, and the length of what stands
 * before "-00002". False: not such a name. */
bool hub_part_of(const char *file, unsigned *part, unsigned *n_parts, size_t *stem);
