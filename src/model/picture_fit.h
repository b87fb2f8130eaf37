/* A picture as a projector's encoder takes it: resized, normed, cut into patches. Pure.
 *
 * The aspect is kept, and what is left over at the edges is black, as llama.cpp's libmtmd does it,
 * so that a model sees the same there and here. */
#pragma once

#include "model/picture.h"
#include "model/projector.h"

enum { PICTURE_ASPECT_MAX = 200 }; /* one side to the other, where a picture keeps its size */

struct picture_grid {
    uint32_t width, height; /* pixels, after it was fitted */
    uint32_t columns, rows; /* of patches */
};

/* ERROR_INVALID: no pixels, or too long for its width. */
enum error_code picture_grid_make(const struct projector_form *form, uint32_t width,
                                  uint32_t height, struct picture_grid *out, struct error *err);
/* Grids with as many rows as any picture has: memory to compute one of them is enough for all. The
 * first has the most rows. */
enum { PICTURE_LARGEST = 2 };
void picture_grid_largest(const struct projector_form *form,
                          struct picture_grid out[PICTURE_LARGEST]);
uint32_t picture_grid_patches(const struct picture_grid *grid);
uint32_t picture_grid_row_count(const struct projector_form *form, const struct picture_grid *grid);

/* In which order patches are computed: order[i] is the number of the i-th, counted from the left
 * and the top. Those of a row stand together where rows are merged of them (Qwen), and then those
 * of a window, windows of one size together. [picture_grid_patches()] */
void picture_grid_order(const struct projector_form *form, const struct picture_grid *grid,
                        uint32_t *order);
/* The row that the patch `number` belongs to, counted likewise. */
uint32_t picture_grid_row_of(const struct projector_form *form, const struct picture_grid *grid,
                             uint32_t number);

/* Windows in that order: those inside, those cut off at the right, below, and at both. */
enum { PICTURE_WINDOW_SIZES = 4 };
struct picture_windows {
    uint32_t count, patches; /* windows, and patches of each */
};
/* Some may have none; without windows the first is one of all patches. */
void picture_grid_windows(const struct projector_form *form, const struct picture_grid *grid,
                          struct picture_windows out[PICTURE_WINDOW_SIZES]);

/* [patches x 3 x patch_size x patch_size], in that order: for each patch red, green and blue, each
 * line by line. ERROR_NO_MEMORY. */
enum error_code picture_fit(const struct projector_form *form, const struct picture *picture,
                            const struct picture_grid *grid, const uint32_t *order, float *patches,
                            struct error *err);
