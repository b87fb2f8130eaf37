#include "model/picture_fit.h"

#include "base/mem.h"
#include "model/picture_resize.h"

#include <assert.h>
#include <math.h>

/* ---- the grid ------------------------------------------------------------------------------- */

static uint32_t picture_align_of(const struct projector_form *form)
{
    return form->patch_size * form->merge;
}

/* The size nearest to the picture's whose sides are multiples of `align`, with at most and at least
 * so many pixels ("smart resize" of Qwen2-VL's preprocessing, in the reference's F32). */
static void picture_keep_aspect(const struct projector_form *form, uint32_t width, uint32_t height,
                                struct picture_grid *out)
{
    const float w = (float)width, h = (float)height, align = (float)picture_align_of(form);
    float x = fmaxf(align, roundf(w / align) * align), y = fmaxf(align, roundf(h / align) * align);
    if (x * y > (float)form->pixels_max) {
        const float beta = sqrtf(w * h / (float)form->pixels_max);
        x = fmaxf(align, floorf(w / beta / align) * align);
        y = fmaxf(align, floorf(h / beta / align) * align);
    } else if (x * y < (float)form->pixels_min) {
        const float beta = sqrtf((float)form->pixels_min / (w * h));
        x = ceilf(w * beta / align) * align;
        y = ceilf(h * beta / align) * align;
    }
    if (x * y > (float)form->pixels_max) { /* a side could not be made shorter than a row's */
        const float most = floorf((float)form->pixels_max / align / align) * align;
        x = fminf(x, most);
        y = fminf(y, most);
    }
    out->width = (uint32_t)x;
    out->height = (uint32_t)y;
}

enum error_code picture_grid_make(const struct projector_form *form, uint32_t width,
                                  uint32_t height, struct picture_grid *out, struct error *err)
{
    const uint32_t longer = width > height ? width : height,
                   shorter = width > height ? height : width;
    *out = (struct picture_grid){.width = form->image_size, .height = form->image_size};
    if (!shorter)
        return error_set(err, ERROR_INVALID, "a picture of %u x %u pixels has none", width, height);
    if (!form->image_size) {
        if (longer / PICTURE_ASPECT_MAX >= shorter)
            return error_set(err, ERROR_INVALID,
                             "a picture of %u x %u pixels is too narrow: one side may be %d times "
                             "the other; crop it",
                             width, height, PICTURE_ASPECT_MAX);
        picture_keep_aspect(form, width, height, out);
    }
    out->columns = out->width / form->patch_size;
    out->rows = out->height / form->patch_size;
    return ERROR_NONE;
}

void picture_grid_largest(const struct projector_form *form, struct picture_grid *out)
{
    const uint32_t align = picture_align_of(form);
    *out = (struct picture_grid){.width = form->image_size, .height = form->image_size};
    if (!form->image_size)
        *out = (struct picture_grid){.width = (uint32_t)(form->pixels_max / align / align) * align,
                                     .height = align};
    out->columns = out->width / form->patch_size;
    out->rows = out->height / form->patch_size;
}

uint32_t picture_grid_patches(const struct picture_grid *grid)
{
    return grid->columns * grid->rows;
}

uint32_t picture_grid_row_count(const struct projector_form *form, const struct picture_grid *grid)
{
    return (grid->columns / form->merge) * (grid->rows / form->merge);
}

void picture_grid_order(const struct projector_form *form, const struct picture_grid *grid,
                        uint32_t *order)
{
    (void)form;
    for (uint32_t i = 0; i < picture_grid_patches(grid); i++)
        order[i] = i;
}

/* ---- pixels --------------------------------------------------------------------------------- */

struct picture_area { /* of the fitted picture, that shows the other */
    uint32_t x, y, width, height;
};

/* The whole of the picture in the middle of `grid`, as large as it fits. */
static struct picture_area picture_place(const struct picture *picture,
                                         const struct picture_grid *grid)
{
    const float x = (float)grid->width / (float)picture->width,
                y = (float)grid->height / (float)picture->height, scale = x < y ? x : y;
    uint32_t width = (uint32_t)ceilf((float)picture->width * scale),
             height = (uint32_t)ceilf((float)picture->height * scale);
    width = width < grid->width ? width : grid->width;
    height = height < grid->height ? height : grid->height;
    return (struct picture_area){(grid->width - width) / 2, (grid->height - height) / 2, width,
                                 height};
}

/* `out`: [grid's height x width x 3], zeroed */
static enum error_code picture_bring_to(const struct picture *picture,
                                        const struct picture_grid *grid, uint8_t *out,
                                        struct error *err)
{
    const size_t line = (size_t)grid->width * 3;
    const struct picture_area area = picture_place(picture, grid);
    return picture_resize(picture, area.width, area.height,
                          out + area.y * line + (size_t)area.x * 3, line, err);
}

enum error_code picture_fit(const struct projector_form *form, const struct picture *picture,
                            const struct picture_grid *grid, const uint32_t *order, float *patches,
                            struct error *err)
{
    const uint32_t side = form->patch_size, n = picture_grid_patches(grid);
    assert(picture->width && picture->height);
    uint8_t *pixels = mem_new_array((size_t)grid->width * grid->height, 3);
    if (!pixels)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a picture of %u x %u pixels",
                         grid->width, grid->height);
    const enum error_code code = picture_bring_to(picture, grid, pixels, err);
    for (uint32_t i = 0; i < n && !code; i++) {
        const uint32_t left = order[i] % grid->columns * side,
                       top = order[i] / grid->columns * side;
        for (uint32_t at = 0; at < 3 * side * side; at++) {
            const uint32_t c = at / (side * side), y = top + at / side % side, x = left + at % side;
            const uint8_t value = pixels[((size_t)y * grid->width + x) * 3 + c];
            *patches++ = ((float)value / 255.0f - form->mean[c]) / form->std[c];
        }
    }
    mem_free(pixels);
    return code;
}
