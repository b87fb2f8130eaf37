/* The models among a repository's files: which files belong together, and in which types their
 * weights are, by their names. Pure. */
#pragma once

#include "base/limits.h"
#include "hub/hub_answer.h"

enum { QUANT_TEXT = 32, QUANT_MODELS = 256 };

struct hub_model_entry {
    char quant[QUANT_TEXT];            /* "Q4_K_M"; "": the name says none */
    uint32_t n_files;                  /* in order; all of them are there */
    uint32_t files[LIMIT_MODEL_PARTS]; /* of the list */
    uint64_t bytes;
};

/* "Q4_K_M" of "…-Q4_K_M-00001-of-00003.gguf". False: the name says none. */
bool quant_of_name(const char *file, char out[QUANT_TEXT]);

/* Models in the list's order; what is no model by itself (projectors, importance matrices) and what
 * lacks a part is left out. How many there are: at most QUANT_MODELS. */
uint32_t quant_models(const struct hub_files *files, struct hub_model_entry *out);
/* Whether `tag` means these types: the same letters in either case, with or without "UD-". */
bool quant_matches(const char *quant, const char *tag);
