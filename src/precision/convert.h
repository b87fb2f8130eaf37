/* Converts a model file into a file of other types, tensor by tensor, on several threads.
 *
 * Memory: about 8 MiB for each thread, whatever the file's size; both files go through the page
 * cache. The same file and types give the same bytes, whatever the number of threads. */
#pragma once

#include "model/gguf_header.h"

struct convert_job {
    const struct gguf_file *file;
    const int *types;                 /* as `header` was made with */
    const struct gguf_header *header; /* of the new file */
    int fd;                           /* the new file: open, for writing */
    uint32_t n_threads;               /* 0: one for each processor */
};

/* Writes header and tensors. ERROR_INVALID: a weight is no number, or the file became shorter.
 * ERROR_IO: the disk is full, or fails. */
enum error_code convert_write(const struct convert_job *job, struct error *err);

/* One tensor alone, to an offset of `fd`; on this thread. */
enum error_code convert_tensor(const struct gguf_file *file, uint64_t tensor, int type, int fd,
                               uint64_t offset, struct error *err);
