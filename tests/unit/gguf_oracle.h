/* Holds gguf_file against ggml's own reader. */
#pragma once

#include "model/gguf_file.h"

/* Reads the same bytes with ggml and asserts that each key and tensor is the same in both. Returns
 * false when ggml refuses the file (it wants tensor data without gaps, which the format does
 * not). */
bool gguf_oracle_agrees(const struct gguf_file *file);
