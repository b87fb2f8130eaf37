/* Reading a model's bytes into memory, past the page cache or through it, and which of the two
 * is faster on this disk.
 *
 * Past the page cache (O_DIRECT) reads do not push out the pages of what is pinned. Through it, the
 * kernel may read ahead further than the disk's queue is deep, and a file that fits in memory is
 * read from the disk once. A model in several files is read as it is shown (gguf_file.h). Which one
 * is faster differs between disks, so it is measured, and measured again by who reads a lot
 * (weight_way.h).
 *
 * Offsets, sizes and addresses are multiples of WEIGHT_DISK_ALIGN. Any thread. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct gguf_file;

enum { WEIGHT_DISK_ALIGN = 4096, WEIGHT_DISK_CHUNK = 1 << 20, WEIGHT_DISK_THREADS = 2 };

struct weight_disk {
    const struct gguf_file *file;
    int *direct;                     /* of each of its files; NULL: they cannot be read so */
    bool is_direct;                  /* the faster way */
    bool drops_behind;               /* what was read through the page cache is not kept in it */
    uint64_t direct_bps, cached_bps; /* bytes per second as measured; 0: not yet */
    int64_t n_blocks;                /* that its files had when it was opened */
};

/* ERROR_UNSUPPORTED: the file is in memory only. */
enum error_code weight_disk_open(struct weight_disk *disk, const struct gguf_file *file,
                                 struct error *err);
void weight_disk_close(struct weight_disk *disk); /* a zeroed one is fine */

/* Measures both ways from `offset` of the file on, and chooses: up to 256 MiB and a fifth of a
 * second each, as many threads as a stream has. */
enum error_code weight_disk_measure(struct weight_disk *disk, uint64_t offset, struct error *err);
uint64_t weight_disk_bps(const struct weight_disk *disk); /* of the chosen way; 0: too short */

/* `size` bytes at `offset`, of which the first `needed` must be there. ERROR_IO: the disk failed,
 * the file was cut, or blocks of it are gone. */
enum error_code weight_disk_read(const struct weight_disk *disk, void *out, uint64_t offset,
                                 uint64_t size, uint64_t needed, struct error *err);
