/* Files that will be mapped, in large pages of the page cache (2 MiB), and memory in such pages.
 *
 * Once bytes are in the page cache, their pages keep the size with which they came. A write brings
 * pages of its own size, so what arrives in small writes lies in small pages until it is dropped
 * from memory; and a read brings them no larger than the disk's readahead (128 KiB on most
 * machines). Both can be had large instead, from Linux 6.16 on ext4, earlier on XFS:
 *
 *     large_pages_expect(fd, at, size); pwrite(fd, bytes, size, at);     who writes
 *     map = mmap(…); large_pages_advise(map, size);                      who maps, before any use
 *
 * Nothing here can fail: where the kernel, the file system or memory has none, pages are small. On
 * other systems than Linux all of it does nothing. Any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LARGE_PAGE_BYTES (UINT64_C(2) << 20)

/* Bytes will be written there next. Holes of the file around them, up to the ends of their large
 * pages, come into memory as zeros; holes they stay. `fd` is open for reading too, and has its
 * length. On local file systems alone: elsewhere zeros would be asked of a network. */
void large_pages_expect(int fd, uint64_t at, uint64_t size);

/* A mapped file that will be read nearly whole, or memory that will be used nearly whole. Pages
 * that only begin or end there are not large. */
void large_pages_advise(const void *bytes, uint64_t size);

/* How those bytes of a file that are in memory lie there. It looks at a few places and reads
 * nothing. */
struct large_pages_seen {
    uint32_t n_places; /* in memory; 0: none, or that cannot be known (a file of another user's) */
    uint32_t n_large;  /* of these */
};
struct large_pages_seen large_pages_look(int fd);

/* Whether a file in this folder can have large pages: tried with one that has no name and no
 * blocks. False also where that cannot be tried. */
bool large_pages_possible(const char *folder);
