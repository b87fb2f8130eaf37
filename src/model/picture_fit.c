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

/* Where few rows are allowed, rounding up, or a side that is no shorter than a row's, may make
 * more.
 */
static void picture_keep_below(const struct projector_form *form, struct picture_grid *grid)
{
    const uint32_t align = picture_align_of(form);
    const uint64_t most = form->pixels_max / align / align; /* rows */
    uint64_t across = grid->width / align, down = grid->height / align;
    uint64_t *longer = across > down ? &across : &down, *shorter = across > down ? &down : &across;
    if (across * down <= most)
        return;
    *longer = most / *shorter ? most / *shorter : 1;
    *shorter = *shorter < most / *longer ? *shorter : most / *longer;
    grid->width = (uint32_t)across * align;
    grid->height = (uint32_t)down * align;
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
    out->width = (uint32_t)x;
    out->height = (uint32_t)y;
    picture_keep_below(form, out);
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

/* Of pictures with their own sizes: one line of rows; and as near to a square as there is, in which
 * windows are cut off at the right and below. */
void picture_grid_largest(const struct projector_form *form,
                          struct picture_grid out[PICTURE_LARGEST])
{
    const uint32_t align = picture_align_of(form);
    for (uint32_t i = 0; i < PICTURE_LARGEST; i++) {
        uint32_t width = form->image_size, height = form->image_size;
        if (!form->image_size) {
            const uint32_t n = (uint32_t)(form->pixels_max / align / align);
            height = i ? (uint32_t)sqrt((double)n) : 1;
            width = n / height * align;
            height *= align;
        }
        out[i] = (struct picture_grid){width, height, width / form->patch_size,
                                       height / form->patch_size};
    }
}

uint32_t picture_grid_patches(const struct picture_grid *grid)
{
    return grid->columns * grid->rows;
}

uint32_t picture_grid_row_count(const struct projector_form *form, const struct picture_grid *grid)
{
    return (grid->columns / form->merge) * (grid->rows / form->merge);
}

uint32_t picture_grid_row_of(const struct projector_form *form, const struct picture_grid *grid,
                             uint32_t number)
{
    const uint32_t x = number % grid->columns / form->merge,
                   y = number / grid->columns / form->merge;
    return y * (grid->columns / form->merge) + x;
}

/* Windows of one size, in rows of patches: `first` is the upper left one's first. */
struct picture_tiling {
    uint32_t first_x, first_y, across, down; /* windows side by side */
    uint32_t width, height;                  /* of each */
};

static void picture_grid_tilings(const struct projector_form *form, const struct picture_grid *grid,
                                 struct picture_tiling out[PICTURE_WINDOW_SIZES])
{
    const uint32_t width = grid->columns / form->merge, height = grid->rows / form->merge;
    const uint32_t x = form->window ? form->window : width,
                   y = form->window ? form->window : height;
    const uint32_t across = width / x, down = height / y, right = width % x, below = height % y;
    out[0] = (struct picture_tiling){0, 0, across, down, x, y};
    out[1] = (struct picture_tiling){across * x, 0, right > 0, down, right, y};
    out[2] = (struct picture_tiling){0, down * y, across, below > 0, x, below};
    out[3] = (struct picture_tiling){across * x, down * y, right > 0, below > 0, right, below};
}

void picture_grid_windows(const struct projector_form *form, const struct picture_grid *grid,
                          struct picture_windows out[PICTURE_WINDOW_SIZES])
{
    struct picture_tiling tilings[PICTURE_WINDOW_SIZES];
    picture_grid_tilings(form, grid, tilings);
    for (int i = 0; i < PICTURE_WINDOW_SIZES; i++)
        out[i] = (struct picture_windows){.count = tilings[i].across * tilings[i].down,
                                          .patches = tilings[i].width * tilings[i].height *
                                                     form->merge * form->merge};
}

/* The patches of the row of patches at (x, y). */
static uint32_t *picture_order_row(const struct projector_form *form,
                                   const struct picture_grid *grid, uint32_t x, uint32_t y,
                                   uint32_t *order)
{
    for (uint32_t dy = 0; dy < form->merge; dy++) {
        for (uint32_t dx = 0; dx < form->merge; dx++)
            *order++ = (y * form->merge + dy) * grid->columns + x * form->merge + dx;
    }
    return order;
}

static uint32_t *picture_order_tiling(const struct projector_form *form,
                                      const struct picture_grid *grid,
                                      const struct picture_tiling *t, uint32_t *order)
{
    for (uint32_t i = 0; i < t->across * t->down; i++) {
        const uint32_t x = t->first_x + i % t->across * t->width,
                       y = t->first_y + i / t->across * t->height;
        for (uint32_t k = 0; k < t->width * t->height; k++)
            order = picture_order_row(form, grid, x + k % t->width, y + k / t->width, order);
    }
    return order;
}

void picture_grid_order(const struct projector_form *form, const struct picture_grid *grid,
                        uint32_t *order)
{
    struct picture_tiling tilings[PICTURE_WINDOW_SIZES];
    if (form->image_size) { /* the mean of patches is taken from lines as they are */
        for (uint32_t i = 0; i < picture_grid_patches(grid); i++)
            order[i] = i;
        return;
    }
    const uint32_t *begin = order;
    picture_grid_tilings(form, grid, tilings);
    for (int i = 0; i < PICTURE_WINDOW_SIZES; i++)
        order = picture_order_tiling(form, grid, &tilings[i], order);
    assert(order == begin + picture_grid_patches(grid));
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
static enum error_code picture_bring_to(const struct projector_form *form,
                                        const struct picture *picture,
                                        const struct picture_grid *grid, uint8_t *out,
                                        struct error *err)
{
    const size_t line = (size_t)grid->width * 3;
    const struct picture_area area = picture_place(picture, grid);
    return picture_resize(picture, area.width, area.height, form->filter,
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
    const enum error_code code = picture_bring_to(form, picture, grid, pixels, err);
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
