/* Code points, as libllama's tokenizers see them.
 *
 * Decoding is lenient on purpose: libllama takes encoded surrogates at their value, and makes
 * U+FFFD of each byte that starts nothing (or an overlong form). Classes are Unicode's general
 * categories, folded to one byte so that a regex over classes needs no Unicode of its own. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    UNICODE_REPLACEMENT = 0xFFFD,
    UNICODE_MAX = 0x10FFFF,
};

/* What unicode_class() gives for a code point beyond ASCII; ASCII is its own class. */
enum unicode_class {
    CLASS_SPACE = 0x0B, /* White_Space: vertical tab stands for it, which \s matches */
    CLASS_OTHER = 0xD0, /* control, format, private, unassigned */
    CLASS_NUMBER = 0xD1,
    CLASS_LETTER = 0xD2,
    CLASS_PUNCTUATION = 0xD3,
    CLASS_MARK = 0xD4,
    CLASS_SYMBOL = 0xD5,
    CLASS_HAN = 0xD6, /* only for the rules that ask for it; otherwise Han is CLASS_LETTER */
};

/* The code point at text[0], size > 0; *length gets the bytes it takes (1 for a byte that starts
 * nothing). */
uint32_t unicode_decode(const char *text, size_t size, size_t *length);
/* Writes 1 to 4 bytes. Surrogates are written as they are. */
size_t unicode_encode(uint32_t code_point, char out[4]);
/* Bytes that a character with this first byte should have; 1 for a continuation byte. */
size_t unicode_length(char first);

uint8_t unicode_class(uint32_t code_point);
bool unicode_is_space(uint32_t code_point);
bool unicode_is_han(uint32_t code_point); /* the blocks of unified and compatibility ideographs */
/* Simple lower case; the first code point of the canonical decomposition. Most are their own. */
uint32_t unicode_lower(uint32_t code_point);
uint32_t unicode_base(uint32_t code_point);

/* GPT-2's byte alphabet: every byte has a printable character of its own (the visible ones
 * themselves, the other 68 from U+0100 on). -1: not in the alphabet. */
uint32_t byte_alphabet_encode(uint8_t byte);
int byte_alphabet_decode(uint32_t code_point);
