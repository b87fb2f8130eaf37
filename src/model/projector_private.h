/* What the parts of the projector share: projector.c opens and answers, projector_keys.c reads its
 * keys, projector_tensors.c finds its tensors. */
#pragma once

#include "model/projector.h"

enum { PROJECTOR_WIDTH_MAX = 1 << 16, PROJECTOR_SIDE_MAX = 4096, PROJECTOR_ROWS_MAX = 4096 };

struct projector {
    struct gguf_file *file;
    struct projector_form form;
    const struct gguf_tensor *tensors[PROJECTOR_BLOCK_FIRST];
    const struct gguf_tensor *(*blocks)[PROJECTOR_ROLES]; /* [n_blocks] */
};

struct projector_type {
    const char *name; /* clip.projector_type */
    const char *before, *after;
    const char *families[4]; /* of language models that its rows are made for */
    uint32_t merge;          /* where the file does not say */
    bool is_whole;           /* see struct picture_rows */
    bool is_sized;           /* every picture is brought to clip.vision.image_size */
    bool is_rms, is_rotated;
    enum picture_filter filter;
};
extern const struct projector_type projector_types[PROJECTOR_KINDS];

/* Reads every key and checks its range. */
enum error_code projector_read_form(const struct gguf_file *file, struct projector_form *form,
                                    struct error *err);
/* Finds every tensor of its kind and checks its shape and type; the form's parts come of it. */
enum error_code projector_find_all(struct projector *projector, struct error *err);
