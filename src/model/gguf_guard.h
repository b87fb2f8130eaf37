/* Mapped model files that somebody shortens while they are in use; private to gguf_file.c.
 *
 * A read beyond the file's new end is SIGBUS, anywhere: in a kernel of ggml, in a driver's copy.
 * The handler puts zeros from that page on to the mapping's end, notes the file as cut, and the
 * read goes on. So whoever computes with a file asks afterwards whether it was whole, and fails
 * what it was computing; the process stays. A SIGBUS elsewhere is as it was without.
 *
 * Any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GGUF_GUARD_NONE UINT32_MAX /* too many files: this one is not guarded */

uint32_t gguf_guard_add(const void *bytes, size_t size);
void gguf_guard_remove(uint32_t guard); /* before the mapping goes */
bool gguf_guard_is_cut(uint32_t guard);
