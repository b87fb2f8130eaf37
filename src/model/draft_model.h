/* Whether a model can guess another's tokens (pipeline/drafter.h). Pure; any thread. */
#pragma once

#include "model/model.h"

/* ERROR_INVALID: it has other tokens. ERROR_UNSUPPORTED: it generates no text, or its caches cannot
 * be cut back. The text names both models. */
enum error_code model_check_draft(const struct model *draft, const struct model *model,
                                  struct error *err);
