/* What each storage type loses: quantise on the host, store on the device, read back, dequantise.
 * The device must return every byte; the loss then is the type's alone, and must stay within what
 * its definition allows.
 *
 * Bounds, for one block of values whose largest magnitude is m (ggml's definitions, ggml-quants.c):
 *   f32   exact
 *   f16   11 significant bits: |e| <= 2^-11 |x|, and half of the smallest subnormal, 2^-25
 *   bf16  8 significant bits: |e| <= 2^-8 |x|
 *   q8_0  steps of d = m/127, d itself stored in f16 (2^-11): |e| <= d/2 + 127 d 2^-11
 *   q4_0  steps of d = m/8 from -8 to 7, so a value at the far end is cut by a whole step:
 *         |e| <= d + 8 d 2^-11 */
#include "world.h"

#include "base/random.h"

#include <ggml.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 64 * 1024, BLOCK = 32 };

static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0,
                                       GGML_TYPE_Q4_0};

/* Normally distributed, as weights are, with a few outliers. Box and Muller's method. */
static void draw_weights(float *weights)
{
    for (uint64_t i = 0; i < N; i++) {
        double radius = sqrt(-2 * log(1 - random_unit_at(1, i)));
        weights[i] = (float)(0.02 * radius * cos(6.283185307179586 * random_unit_at(2, i)));
        if (random_unit_at(3, i) < 0.001)
            weights[i] *= 20;
    }
}

static void encode(enum ggml_type type, const float *from, void *to)
{
    if (type == GGML_TYPE_F32)
        memcpy(to, from, N * sizeof *from);
    else
        assert_int_equal(ggml_quantize_chunk(type, from, to, 0, N / BLOCK, BLOCK, NULL),
                         ggml_row_size(type, N));
}

static void decode(enum ggml_type type, const void *from, float *to)
{
    if (type == GGML_TYPE_F32)
        memcpy(to, from, N * sizeof *to);
    else
        ggml_get_type_traits(type)->to_float(from, to, N);
}

static double bound(enum ggml_type type, double x, double m)
{
    const double f16 = 0x1p-11;
    switch ((int)type) {
    case GGML_TYPE_F16:
        return fabs(x) * f16 + 0x1p-25;
    case GGML_TYPE_BF16:
        return fabs(x) * 0x1p-8;
    case GGML_TYPE_Q8_0:
        return m / 127 * (0.5 + 127 * f16) + 0x1p-25 * 127;
    case GGML_TYPE_Q4_0:
        return m / 8 * (1 + 8 * f16) + 0x1p-25 * 8;
    default:
        return 0;
    }
}

struct loss {
    double root_mean_square; /* of the error, relative to that of the values */
    double largest;          /* error, relative to the largest value of its block */
    double of_bound;         /* the largest share of the bound that an error took */
};

static struct loss measure(enum ggml_type type, const float *weights, const float *back)
{
    struct loss loss = {0};
    double errors = 0, squares = 0;
    for (size_t block = 0; block < N; block += BLOCK) {
        double m = 0;
        for (size_t i = block; i < block + BLOCK; i++)
            m = fmax(m, fabs((double)weights[i]));
        for (size_t i = block; i < block + BLOCK; i++) {
            double x = (double)weights[i], error = fabs((double)back[i] - x),
                   most = bound(type, x, m);
            errors += error * error;
            squares += x * x;
            loss.largest = fmax(loss.largest, error / m);
            assert_true(error <= most);
            if (most > 0)
                loss.of_bound = fmax(loss.of_bound, error / most);
        }
    }
    loss.root_mean_square = sqrt(errors / squares);
    return loss;
}

static void test_round_trips(void **state)
{
    (void)state;
    float *weights = malloc(N * sizeof *weights), *back = malloc(N * sizeof *back);
    unsigned char *stored = malloc(N * sizeof *weights), *read = malloc(N * sizeof *weights);
    assert_true(weights && back && stored && read);
    draw_weights(weights);
    for (uint32_t i = 0; i < device_count(); i++) {
        double before = -1;
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            size_t size = ggml_row_size(types[t], N);
            encode(types[t], weights, stored);
            struct medley_device_buffer buffer = alloc(device_at(i), size);
            assert_int_equal(try_write(device_at(i), buffer, 0, stored, size), MEDLEY_ERROR_NONE);
            memset(read, 0, size);
            assert_int_equal(try_read(device_at(i), buffer, 0, read, size), MEDLEY_ERROR_NONE);
            assert_memory_equal(read, stored, size);
            assert_int_equal(try_free(device_at(i), buffer), MEDLEY_ERROR_NONE);
            decode(types[t], read, back);
            struct loss loss = measure(types[t], weights, back);
            print_message("# %s %-4s %6.3f bits a value, loss: rms %.2e, largest %.2e, %3.0f %% of "
                          "the bound\n",
                          device_id(i), ggml_type_name(types[t]), (double)size * 8 / (double)N,
                          loss.root_mean_square, loss.largest, loss.of_bound * 100);
            if (types[t] == GGML_TYPE_F32)
                assert_true(loss.root_mean_square == 0);
            if (types[t] !=
                GGML_TYPE_Q8_0) /* the list goes from little loss to much; bf16 and q8_0 are near */
                assert_true(loss.root_mean_square > before);
            before = loss.root_mean_square;
        }
    }
    free(weights);
    free(back);
    free(stored);
    free(read);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trips)};
    return cmocka_run_group_tests_name("device precision", tests, open_devices, close_devices);
}
