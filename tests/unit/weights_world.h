/* Folders and small models for the tests of weights that travel. */
#pragma once

#include "weights/manifest.h"
#include "weights/part_set.h"

#include <limits.h>

/* A fresh folder under TMPDIR; weights_folder_remove() takes all that is in it. */
void weights_folder_make(char out[PATH_MAX]);
void weights_folder_remove(const char *folder);

/* The golden set's model: "qwen3" -> …/models/qwen3.gguf. */
const char *weights_golden(const char *name, char out[PATH_MAX]);

void weights_copy_file(const char *from, const char *to);
void weights_flip_byte(const char *path, uint64_t offset);
void *weights_read(const char *path, uint64_t offset, uint64_t size); /* free() it */

/* The manifest of a file that holds any bytes: parts of these sizes, one behind the other, the
 * header first. The bytes are weights_byte(part, place). */
struct manifest weights_manifest(const uint64_t *sizes, uint32_t n);
uint8_t weights_byte(uint32_t part, uint64_t place);
void weights_fill(uint32_t part, uint64_t offset, uint8_t *out, uint64_t size);
