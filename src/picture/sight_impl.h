/* What the sight of this process is made of; private to the room. */
#pragma once

#include "picture/sight.h"

/* sight_prompt.c: sight.encode. */
enum error_code sight_encode_here(const struct sight *sight, const struct tokenizer *tokenizer,
                                  const struct sight_text *text,
                                  struct prompt_picture *const *pictures, uint32_t n,
                                  struct token_list *out, struct request_picture *at,
                                  struct error *err);
