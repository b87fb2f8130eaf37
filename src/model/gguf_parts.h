/* A model in several files ("…-00001-of-00003.gguf"), shown as one; private to the gguf files.
 *
 * Every part is a GGUF file by itself, with some of the tensors; the first has the model's keys,
 * all say `split.no`, `split.count` and `split.tensors.count` (llama.cpp's gguf-split). They are
 * mapped one behind another into one range of addresses, behind a header made of the first part's
 * keys and the tensors of all: what reads a whole file reads this one. It depends on the parts'
 * contents alone, so that the same parts are the same model on every machine. */
#pragma once

#include "model/gguf_index.h"

/* The .gguf file that `path` means: itself, or of a folder the one model that lies in it.
 * `out`: PATH_MAX bytes. ERROR_INVALID: there is none, or more than one. */
enum error_code gguf_parts_choose(const char *path, char *out, struct error *err);
/* The name of part `index` of `n_parts`, beside the part at `path`. ERROR_INVALID: that name does
 * not end in "-00002-of-00003.gguf". */
enum error_code gguf_parts_name(const char *path, uint32_t index, uint32_t n_parts, char *out,
                                struct error *err);

/* How many files the model has of which this is one; 1: it is whole. ERROR_INVALID: more than
 * LIMIT_MODEL_PARTS. */
enum error_code gguf_parts_count(const struct gguf_file *file, uint32_t *out, struct error *err);
/* Makes `out` (zeroed but for its path) of all parts in order, and takes their descriptors. It is
 * mapped but not yet checked. ERROR_INVALID: one is here twice, or of another model. */
enum error_code gguf_parts_join(struct gguf_file *parts[], uint32_t n_parts, struct gguf_file *out,
                                struct error *err);
