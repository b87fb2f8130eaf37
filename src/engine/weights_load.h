/* Copying tensors from the mapped file into their buffers, converted where the stage has them in
 * another type. */
#pragma once

#include "base/error.h"
#include "model/gguf_file.h"

#include <ggml-backend.h>
#include <stdbool.h>

struct weight_pool;

struct tensor_copy {
    struct ggml_tensor *tensor;
    const struct gguf_tensor *source; /* as it is here */
    const struct gguf_tensor *stored; /* as the file has it; another type: it is converted */
    const struct weight_pool *pool;
    bool mapped; /* it lies in the mapped file itself: nothing to copy */
};

/* Copies every tensor that is not mapped, on `n_threads` threads, and converts on as many as the
 * machine has for it; each tensor's pages of the file
 * are given back to the system when it is done, so that the file does not count twice. With
 * `touches` the pages of what is mapped are read in now, and not when they are first used. Says in
 * the log how far it is. Ends with ERROR_CANCELLED after the tensors under way when
 * *stop is set (NULL: never). */
enum error_code weights_copy(const struct tensor_copy *sources, uint32_t n_sources,
                             const struct gguf_file *file, uint32_t n_threads, bool touches,
                             const _Atomic bool *stop, struct error *err);

/* Asks for large pages under a buffer of the CPU's, before it is filled; no-op elsewhere. Decoding
 * reads every weight once per token, so the walks of 4 KiB page tables are pure loss. */
void weights_advise_large_pages(ggml_backend_buffer_t buffer);

/* Fills a buffer with zeros. Plain memory of this process takes pages only when they are written:
 * clearing a cache of 4,096 tokens costs a start 50 ms, and most of it is never used. */
void weights_clear(ggml_backend_buffer_t buffer);
