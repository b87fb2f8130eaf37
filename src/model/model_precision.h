/* A model in a smaller type: the same model, as a stage has it that converts its matrices while it
 * loads them (engine/weight_convert.h).
 *
 * Its tensors say type and size as computed, so cost, plan and stage need not know more. Its file
 * is the original's: where a tensor's bytes lie in it, and as what, model_stored() says. Which
 * tensors change is weight_choice.h's rule, as of `medley convert --to TYPE`; none becomes larger,
 * whatever the type. The conversion is that of `medley convert`, to the bit. */
#pragma once

#include "model/model.h"

/* `precision`: enum ggml_type; 0: as stored. *out is `model` itself where nothing would change;
 * else it is kept by the original, the same one whenever it is asked for, and goes with it. Any
 * thread. ERROR_UNSUPPORTED: weights are not converted to that type. */
enum error_code model_at_precision(const struct model *model, int precision,
                                   const struct model **out, struct error *err);

/* Whether some of its weights are not as the file has them. */
bool model_is_converted(const struct model *model);
/* The tensor as the file has it. */
const struct gguf_tensor *model_stored(const struct model *model, const struct gguf_tensor *tensor);
/* Whether it takes less at this precision than at another; false where one is not known. */
bool model_is_smaller_at(const struct model *model, int precision, int than);
bool model_precision_is_known(int precision); /* 0, too */
/* "q4_k"; "as stored" for 0. */
const char *model_precision_name(int precision);
