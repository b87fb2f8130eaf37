/* The walk over a GGUF file that leaves its vocabulary out; private to gguf_file.c.
 *
 * A header is mostly texts of tokens and merges, and the tensors' descriptions lie behind them. The
 * format says how many texts an array has, not how long it is. So gguf_skim() looks for its end: a
 * page here and there, each of which is or is not part of a chain of texts, and halves what is
 * between. A place that is found counts only when all that follows it holds: keys, then as many
 * descriptions as the header says, with their data inside the file and apart from each other. */
#pragma once

#include "model/gguf_index.h"

/* Fills *index (zeroed by the caller) without arrays of SKIM_TEXTS texts and more, and perhaps
 * without keys between two of those (`misses_keys`). Checks what it reads, and nothing else: the
 * texts that it passes over may be anything.
 *
 * False, and *index is empty: the file has to be read whole, which says what is wrong, if anything
 * is. */
bool gguf_skim(const uint8_t *bytes, uint64_t size, struct gguf_index *index, bool *misses_keys);
