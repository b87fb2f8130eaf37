#include "model/picture_resize.h"

#include "base/mem.h"

#include <math.h>

enum { WEIGHT_BITS = 22 }; /* 32, less 8 of a pixel, less 2 for the sum */

struct resize_axis {
    uint32_t n;       /* after resizing */
    uint32_t taps;    /* pixels that one is made of, at most */
    uint32_t *first;  /* [n] */
    uint32_t *count;  /* [n] */
    int32_t *weights; /* [n x taps] */
};

static void resize_axis_deinit(struct resize_axis *axis)
{
    mem_free(axis->first);
    mem_free(axis->count);
    mem_free(axis->weights);
}

static double resize_reach(enum picture_filter filter)
{
    return filter == PICTURE_BILINEAR ? 1 : 2;
}

static double resize_filter(enum picture_filter filter, double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (filter == PICTURE_BILINEAR)
        return fmax(0, 1 - x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/* Pixel i lies at (i + 1/2) x scale among the others, and the filter's sides are `reach` long. */
static void resize_axis_fill(struct resize_axis *axis, uint32_t i, uint32_t from, double scale,
                             enum picture_filter filter)
{
    const double stretch = scale > 1 ? scale : 1, reach = resize_reach(filter) * stretch;
    const double center = ((double)i + 0.5) * scale;
    const double low = floor(center - reach + 0.5), high = floor(center + reach + 0.5);
    const uint32_t first = low > 0 ? (uint32_t)low : 0,
                   end = high < (double)from ? (uint32_t)high : from;
    double sum = 0;
    for (uint32_t k = first; k < end; k++)
        sum += resize_filter(filter, ((double)k - center + 0.5) / stretch);
    for (uint32_t k = first; k < end; k++) {
        const double weight = resize_filter(filter, ((double)k - center + 0.5) / stretch);
        axis->weights[(size_t)i * axis->taps + k - first] =
            (int32_t)round(weight / sum * (1 << WEIGHT_BITS));
    }
    axis->first[i] = first;
    axis->count[i] = end - first;
}

static enum error_code resize_axis_init(struct resize_axis *axis, uint32_t from, uint32_t to,
                                        enum picture_filter filter, struct error *err)
{
    const double scale = (double)from / (double)to;
    const uint32_t taps = (uint32_t)ceil(resize_reach(filter) * fmax(scale, 1)) * 2 + 1;
    *axis = (struct resize_axis){.n = to,
                                 .taps = taps,
                                 .first = mem_new_array(to, sizeof *axis->first),
                                 .count = mem_new_array(to, sizeof *axis->count),
                                 .weights = mem_new_array((size_t)to * taps, sizeof(int32_t))};
    if (!axis->first || !axis->count || !axis->weights)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to resize a picture");
    for (uint32_t i = 0; i < to; i++)
        resize_axis_fill(axis, i, from, scale, filter);
    return ERROR_NONE;
}

/* One value of those that lie `step` apart from `in` on. */
static uint8_t resize_sum(const struct resize_axis *axis, uint32_t i, const uint8_t *in,
                          size_t step)
{
    const int32_t *weights = axis->weights + (size_t)i * axis->taps;
    int64_t sum = 1 << (WEIGHT_BITS - 1);
    in += axis->first[i] * step;
    for (uint32_t k = 0; k < axis->count[i]; k++)
        sum += (int64_t)in[k * step] * weights[k];
    sum >>= WEIGHT_BITS;
    return sum < 0 ? 0 : sum > 255 ? 255 : (uint8_t)sum;
}

static void resize_lines(const struct picture *picture, const struct resize_axis *x, uint8_t *out)
{
    for (uint32_t line = 0; line < picture->height; line++) {
        const uint8_t *in = picture->rgb + (size_t)line * picture->width * 3;
        for (uint32_t i = 0; i < x->n; i++) {
            for (uint32_t c = 0; c < 3; c++)
                *out++ = resize_sum(x, i, in + c, 3);
        }
    }
}

enum error_code picture_resize(const struct picture *picture, uint32_t width, uint32_t height,
                               enum picture_filter filter, uint8_t *out, size_t stride,
                               struct error *err)
{
    struct resize_axis x = {0}, y = {0};
    const size_t line = (size_t)width * 3;
    uint8_t *narrowed = mem_new_array(picture->height, line);
    enum error_code code = ERROR_NONE;
    if (!narrowed)
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory to resize a picture");
    if (!code)
        code = resize_axis_init(&x, picture->width, width, filter, err);
    if (!code)
        code = resize_axis_init(&y, picture->height, height, filter, err);
    if (!code)
        resize_lines(picture, &x, narrowed);
    for (uint32_t i = 0; i < height && !code; i++) {
        for (size_t at = 0; at < line; at++)
            out[i * stride + at] = resize_sum(&y, i, narrowed + at, line);
    }
    resize_axis_deinit(&x);
    resize_axis_deinit(&y);
    mem_free(narrowed);
    return code;
}
