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
/* The grid that takes the most memory to compute, and the most rows. */
void picture_grid_largest(const struct projector_form *form, struct picture_grid *out);
uint32_t picture_grid_patches(const struct picture_grid *grid);
uint32_t picture_grid_row_count(const struct projector_form *form, const struct picture_grid *grid);

/* In which order patches are computed: order[i] is the number of the i-th, counted from the left
 * and the top. [picture_grid_patches()] */
void picture_grid_order(const struct projector_form *form, const struct picture_grid *grid,
                        uint32_t *order);

/* [patches x 3 x patch_size x patch_size], in that order: for each patch red, green and blue, each
 * line by line. ERROR_NO_MEMORY. */
enum error_code picture_fit(const struct projector_form *form, const struct picture *picture,
                            const struct picture_grid *grid, const uint32_t *order, float *patches,
                            struct error *err);
