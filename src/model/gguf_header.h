/* The header of a new GGUF file with the keys of another, and its tensors in other types.
 *
 * The keys are copied byte by byte, but for general.file_type. So the header is as long as the
 * file's own, and nothing that Medley does not understand is lost. Pure. */
#pragma once

#include "model/gguf_file.h"

struct gguf_header {
    uint8_t *bytes;
    uint64_t size;     /* up to where the tensors' data begins */
    uint64_t *offsets; /* of each tensor from the start of the file, in the file's order */
    uint64_t *sizes;   /* bytes of each */
    uint64_t end;      /* of the file */
};

/* types[i]: the i-th tensor's, one that its rows are whole blocks of. file_type: UINT32_MAX leaves
 * the key as it is. The header is zeroed when it fails. */
enum error_code gguf_header_make(const struct gguf_file *file, const int *types, uint32_t file_type,
                                 struct gguf_header *out, struct error *err);
/* Says that the tensor is of this type and lies there; `bytes` alone changes. */
void gguf_header_move(struct gguf_header *header, const struct gguf_file *file, uint64_t tensor,
                      int type, uint64_t offset);
void gguf_header_deinit(struct gguf_header *header);
