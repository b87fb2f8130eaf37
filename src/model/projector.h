/* A projector: the file beside a language model ("mmproj") that holds the encoder of pictures.
 *
 * projector_open() maps the file, reads and checks every hyper-parameter, and checks that each
 * tensor which its kind needs is there with the right shape and type. It reads no weights.
 * engine/picture_encoder.h computes with it; model/picture_fit.h cuts pictures to its size.
 *
 * Keys and names of tensors are those of GGUF files whose general.architecture is "clip". Encoders:
 * SigLIP (Zhai et al. 2023, arXiv:2303.15343) in Gemma 3 (arXiv:2503.19786); Qwen2-VL
 * (arXiv:2409.12191), Qwen2.5-VL (arXiv:2502.13923), Qwen3-VL.
 *
 * Read-only after open, but for projector_limit_rows(): any thread. */
#pragma once

#include "base/error.h"
#include "model/gguf_file.h"
#include "model/picture_resize.h"

#include <stdbool.h>
#include <stdint.h>

struct model;
struct projector;

enum projector_kind {
    PROJECTOR_GEMMA3,
    PROJECTOR_QWEN2VL,
    PROJECTOR_QWEN25VL,
    PROJECTOR_QWEN3VL,
    PROJECTOR_KINDS
};
enum projector_activation { PROJECTOR_GELU, PROJECTOR_GELU_QUICK, PROJECTOR_SILU };

/* Tensors outside the blocks, then those of each block. W is a matrix or a norm's weight, B a bias.
 */
enum projector_role {
    PROJECTOR_PATCHES,
    PROJECTOR_PATCHES_SECOND, /* of a second picture in time: for one picture the same again */
    PROJECTOR_PATCHES_B,
    PROJECTOR_POSITIONS,
    PROJECTOR_POST_NORM_W,
    PROJECTOR_POST_NORM_B,
    PROJECTOR_SOFT_NORM_W,
    PROJECTOR_INPUT_W,
    PROJECTOR_MERGE_1_W,
    PROJECTOR_MERGE_1_B,
    PROJECTOR_MERGE_2_W,
    PROJECTOR_MERGE_2_B,
    PROJECTOR_BLOCK_FIRST,
    PROJECTOR_NORM_1_W = PROJECTOR_BLOCK_FIRST,
    PROJECTOR_NORM_1_B,
    PROJECTOR_NORM_2_W,
    PROJECTOR_NORM_2_B,
    PROJECTOR_Q_W,
    PROJECTOR_Q_B,
    PROJECTOR_K_W,
    PROJECTOR_K_B,
    PROJECTOR_V_W,
    PROJECTOR_V_B,
    PROJECTOR_QKV_W,
    PROJECTOR_QKV_B,
    PROJECTOR_OUT_W,
    PROJECTOR_OUT_B,
    PROJECTOR_GATE_W,
    PROJECTOR_GATE_B,
    PROJECTOR_UP_W,
    PROJECTOR_UP_B,
    PROJECTOR_DOWN_W,
    PROJECTOR_DOWN_B,
    PROJECTOR_DEEP_FIRST, /* of the blocks whose result is a part of the rows by itself */
    PROJECTOR_DEEP_NORM_W = PROJECTOR_DEEP_FIRST,
    PROJECTOR_DEEP_NORM_B,
    PROJECTOR_DEEP_1_W,
    PROJECTOR_DEEP_1_B,
    PROJECTOR_DEEP_2_W,
    PROJECTOR_DEEP_2_B,
    PROJECTOR_ROLES
};

struct projector_form {
    enum projector_kind kind;
    uint32_t n_embd, n_head, n_ff, n_blocks;
    uint32_t n_out;      /* a row's width without parts: the language model's hidden width */
    uint32_t n_deep;     /* parts of a row beside the first ("deepstack") */
    uint32_t patch_size; /* pixels on a side */
    uint32_t image_size; /* pixels on a side that every picture is brought to; 0: its own size */
    uint32_t merge;      /* patches on a side of what becomes one row */
    uint64_t pixels_min, pixels_max; /* of a picture of its own size, after it was fitted */
    float mean[3], std[3];           /* of red, green and blue, which are 0 to 1 */
    enum picture_filter filter;      /* that pictures are resized with */
    float epsilon;
    bool is_rms;                 /* norms are RMS norms */
    bool is_rotated;             /* queries and keys, by line and column */
    uint32_t table_side;         /* positions are learned for a grid of so many on a side, and
                                    stretched to the picture's; 0: for the picture's own, or none */
    uint32_t window, full_every; /* all but each full_every-th block see windows of so many rows on
                                    a side; 0: none does */
    enum projector_activation activation;
};

enum error_code projector_open(const char *path, struct projector **out, struct error *err);
/* Takes the file, also on failure. */
enum error_code projector_open_file(struct gguf_file *file, struct projector **out,
                                    struct error *err);
void projector_close(struct projector *projector);

const struct gguf_file *projector_file(const struct projector *projector);
const struct projector_form *projector_form(const struct projector *projector);
const char *projector_kind_name(const struct projector *projector); /* "gemma3" */
/* `block` is ignored outside the blocks. NULL: this one has none. */
const struct gguf_tensor *projector_tensor(const struct projector *projector,
                                           enum projector_role role, uint32_t block);
uint64_t projector_weight_bytes(const struct projector *projector);

/* The text that stands before and after a picture's rows, one special token each. */
const char *projector_text_before(const struct projector *projector);
const char *projector_text_after(const struct projector *projector);

/* ERROR_INVALID where its rows are not what this language model takes, with both named. */
enum error_code projector_check_model(const struct projector *projector, const struct model *model,
                                      struct error *err);

/* What a picture of that size becomes (model/picture_fit.h has the details). */
struct projector_rows {
    uint32_t n_rows, width;
    uint32_t grid_width, grid_height; /* as in struct picture_rows */
    bool is_whole;
};
/* ERROR_INVALID: no picture has that size, or it is too long for its width. */
enum error_code projector_rows(const struct projector *projector, uint32_t width, uint32_t height,
                               struct projector_rows *out, struct error *err);
/* The most rows that any picture becomes. */
uint32_t projector_rows_max(const struct projector *projector);
/* Where pictures have their own sizes, larger ones are made smaller, so that none becomes more than
 * `n_rows` (one at least). No effect where all are brought to one size. Before it is used. */
void projector_limit_rows(struct projector *projector, uint32_t n_rows);
