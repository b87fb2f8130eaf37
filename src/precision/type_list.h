/* A file that says which type each tensor of a model gets: written by `medley convert --plan`, to
 * be looked at, changed and carried out. Lines of text; what is behind # is ignored:
 *
 *     medley types 1
 *     model 47 2645056
 *     token_embd.weight q6_k      # 0.000231
 *
 * The second line is the model's number of tensors and their bytes, so that it is not carried out
 * on another. A tensor that is not named stays as it is. */
#pragma once

#include "base/buffer.h"
#include "model/weight_choice.h"

enum { TYPE_LIST_BYTES_MAX = 16 << 20 };

/* The tensors that change, with losses[i] as a remark; `remark`: lines of it, without #. */
void type_list_write(const struct weight_choice *choice, const struct model *model,
                     const double *losses, const char *remark, struct buffer *out);
/* Into a choice that is as the file has it. ERROR_INVALID with the line: no such list, a list of
 * another model, an unknown tensor or type, a tensor that may not change, a type that does not fit
 * its rows. */
enum error_code type_list_read(const struct buffer *text, const struct model *model,
                               struct weight_choice *choice, struct error *err);
