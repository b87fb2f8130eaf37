/* The type of each tensor of a new file. Pure.
 *
 * Only matrices that a batch is multiplied with, and the token embedding, ever change. Norms,
 * biases, routers and all that is small stay as they are. The head (`output`, or the embedding
 * where it is the head too) decides on every token: with one type for all it gets q6_k at least. A
 * matrix is never made larger, unless a float type is asked for. */
#pragma once

#include "model/model.h"

struct weight_choice {
    uint64_t n_tensors;
    int *types; /* of each tensor of the file, in its order (enum ggml_type) */
};

/* As the file has them. ERROR_NO_MEMORY. */
enum error_code weight_choice_init(struct weight_choice *choice, const struct model *model,
                                   struct error *err);
void weight_choice_deinit(struct weight_choice *choice);

/* Whether this tensor may change; *is_head: it is multiplied with to get the logits. */
bool weight_choice_is_matrix(const struct model *model, uint64_t tensor, bool *is_head);
/* What `type` means for this tensor: its rows' blocks, and never larger. */
int weight_choice_type(const struct model *model, uint64_t tensor, int type);

/* Every matrix to `type`, the head by its rule; `pure`: the head, too. */
void weight_choice_all(struct weight_choice *choice, const struct model *model, int type,
                       bool pure);
uint64_t weight_choice_bytes(const struct weight_choice *choice, const struct model *model);
/* The type that most bytes are in. */
int weight_choice_main_type(const struct weight_choice *choice, const struct model *model);
