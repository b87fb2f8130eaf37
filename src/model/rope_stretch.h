/* Rotations other than those that a model's file asks for, so that it reads longer contexts than it
 * was trained for. The options have llama.cpp's names and meaning.
 *
 *   linear  positions are divided by the factor (Chen et al. 2023, arXiv:2306.15595)
 *   yarn    slow rotations are, fast ones are not, and keys grow by 1 + 0.1 ln factor
 *           (Peng et al. 2023, arXiv:2309.00071)
 *   base    a larger base slows rotations down, the slow ones most: one that is f^(d / (d - 2))
 *           times as large, for d rotated dimensions, stretches the slowest by f (the same paper,
 *           3.1)
 *
 * Only between opening a model and its first use: model_stretch(). Pure. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum rope_choice { ROPE_AS_FILE, ROPE_CHOOSE_NONE, ROPE_CHOOSE_LINEAR, ROPE_CHOOSE_YARN };

struct rope_stretch {      /* zeroed: as the file says */
    enum rope_choice type; /* --rope-scaling */
    float factor;          /* --rope-scale; 0: as the file says, else 1 */
    float base;            /* --rope-freq-base; 0: as the file says */
    uint32_t n_original; /* --yarn-orig-ctx: tokens that it was trained for; 0: as the file says */
};

bool rope_stretch_is_set(const struct rope_stretch *stretch);
const char *rope_choice_name(enum rope_choice choice); /* "none", "linear", "yarn" */
/* ERROR_INVALID: no such name; the file's own has none. */
enum error_code rope_choice_find(const char *name, enum rope_choice *out, struct error *err);
/* What no model could be given. ERROR_INVALID. */
enum error_code rope_stretch_check(const struct rope_stretch *stretch, struct error *err);

struct architecture;
struct hyperparameters;

/* Changes the rotations, and n_context_train, which becomes what they reach. ERROR_INVALID: the
 * options contradict each other; ERROR_UNSUPPORTED: the model rotates nothing, or by factors of its
 * own for each dimension, or its family ties YaRN to its scores. */
enum error_code rope_stretch_apply(const struct rope_stretch *stretch,
                                   const struct architecture *architecture,
                                   struct hyperparameters *h, struct error *err);
