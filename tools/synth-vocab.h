/* A made-up SentencePiece vocabulary for synthetic models.
 *
 * Unknown, begin and end of text; the 256 byte tokens; then pieces: every printable ASCII
 * character, and words of two-letter syllables ("ba", "▁ba", "bake", "▁bake", "▁bakelo"), each
 * longer piece reachable by merging two shorter ones. A piece's score falls with its index, as in a
 * trained vocabulary. */
#pragma once

#include <gguf.h>
#include <stdint.h>

enum {
    SYNTH_VOCAB_MIN = 3 + 256 + 95,
    SYNTH_VOCAB_MAX = 1000000,
};

/* Sets the tokenizer's keys for a vocabulary of `size` tokens, SYNTH_VOCAB_MIN to
 * SYNTH_VOCAB_MAX. */
void synth_vocab_add(struct gguf_context *gguf, uint32_t size);
