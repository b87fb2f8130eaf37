/* Four words for 32 bits, for two people (or one with two screens) to compare. Pure. */
#pragma once

#include <stdint.h>

enum { JOIN_WORDS = 4, JOIN_WORDS_TEXT = 40 };

void join_words_text(const uint8_t value[JOIN_WORDS], char text[JOIN_WORDS_TEXT]);

/* The word for one byte. */
const char *join_word(uint8_t value);
