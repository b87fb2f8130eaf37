/* The text that models are measured on where no other is given: 24 short stories in plain English,
 * 4,447 words. */
#pragma once

#include <stddef.h>

extern const char bundled_text[]; /* UTF-8, with a NUL */
extern const size_t bundled_text_size;
