/* The SHA-256 of a file while it is being pulled: a thread hashes what is here from the file's
 * start on, so that with the last byte the hash is nearly there.
 *
 *     pull_hash_open(&fd_s_file, &hash, &err)
 *     … pull_hash_reach(hash, bytes that are here from the start) …
 *     while (!pull_hash_wait(hash, 100)) …                        all of it is here
 *     pull_hash_close(hash, &digest)
 *
 * Bytes that it was told of must not change any more. The thread that opened it calls all. */
#pragma once

#include "trust/digest.h"

#include <stdint.h>

struct pull_hash;

/* The descriptor stays the caller's. */
enum error_code pull_hash_open(int fd, uint64_t size, struct pull_hash **out, struct error *err);
/* Never less than before. */
void pull_hash_reach(struct pull_hash *hash, uint64_t bytes);
uint64_t pull_hash_done(struct pull_hash *hash); /* bytes that are hashed */
/* False: so many milliseconds have passed before it was through with the file, or failed. */
bool pull_hash_wait(struct pull_hash *hash, uint32_t ms);
/* False: it was given up, or failed. NULL is fine, and false. */
bool pull_hash_close(struct pull_hash *hash, struct digest *out);
