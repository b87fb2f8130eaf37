#include "gpu/verify.h"

#include "base/mem.h"
#include "base/random.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    FIRST_BYTES = 1024 * 1024 + 3,
    SECOND_BYTES = 512 * 1024 + 13,
    PIECE_BYTES = 300007, /* odd, so that no piece starts on a boundary the device likes */
    STAMP_BYTES = 4096,
    LARGE_BYTES_MAX = 64 * 1024 * 1024,
    MATRIX_N = 64,
};

struct check {
    const struct device_impl *impl;
    void *self;
    uint8_t *wrote; /* FIRST_BYTES of scratch each */
    uint8_t *read;
    struct error *err;
};

static void fill_pattern(uint8_t *bytes, uint64_t size, uint64_t seed)
{
    uint64_t i = 0;
    for (; i + 8 <= size; i += 8) {
        uint64_t word = random_mix((seed << 40) + i);
        memcpy(bytes + i, &word, 8);
    }
    for (; i < size; i++)
        bytes[i] = (uint8_t)random_mix((seed << 40) + i);
}

static enum error_code write_pattern(const struct check *check, void *memory, uint64_t offset,
                                     uint64_t size, uint64_t seed)
{
    fill_pattern(check->wrote, size, seed);
    for (uint64_t at = 0; at < size;) {
        uint64_t piece = size - at < PIECE_BYTES ? size - at : PIECE_BYTES;
        if (check->impl->copy_to(check->self, memory, offset + at, check->wrote + at, piece,
                                 check->err))
            return error_wrap(check->err, "write of %" PRIu64 " bytes", piece);
        at += piece;
    }
    return ERROR_NONE;
}

static enum error_code expect_pattern(const struct check *check, void *memory, uint64_t offset,
                                      uint64_t size, uint64_t seed)
{
    fill_pattern(check->wrote, size, seed);
    memset(check->read, 0, size);
    if (check->impl->copy_from(check->self, memory, offset, check->read, size, check->err))
        return error_wrap(check->err, "read of %" PRIu64 " bytes", size);
    if (memcmp(check->read, check->wrote, size) == 0)
        return ERROR_NONE;
    uint64_t i = 0;
    while (check->read[i] == check->wrote[i])
        i++;
    return error_set(check->err, ERROR_DEVICE,
                     "it returned wrong data: byte %" PRIu64 " reads 0x%02x, 0x%02x was written",
                     offset + i, check->read[i], check->wrote[i]);
}

static enum error_code verify_allocate(const struct check *check, uint64_t size, void **memory)
{
    *memory = NULL;
    if (check->impl->allocate(check->self, size, memory, check->err)) {
        struct device_memory claim = check->impl->memory(check->self);
        return error_wrap(check->err,
                          "it claims %" PRIu64 " MiB free but does not give %" PRIu64 " KiB",
                          claim.free_bytes >> 20, size >> 10);
    }
    return ERROR_NONE;
}

static enum error_code copy_across(const struct check *check, void *first, void *second)
{
    if (!check->impl->copy_between)
        return ERROR_NONE;
    /* bytes 5.. of the first over bytes 11.. of the second, all of odd length */
    const uint64_t size = 70001;
    enum error_code code = write_pattern(check, first, 5, size, 3);
    if (!code)
        code = check->impl->copy_between(check->self, first, 5, check->self, second, 11, size,
                                         check->err);
    if (code == ERROR_UNSUPPORTED)
        return ERROR_NONE;
    return code ? code : expect_pattern(check, second, 11, size, 3);
}

static enum error_code check_transfers(const struct check *check)
{
    void *first = NULL, *second = NULL;
    enum error_code code = verify_allocate(check, FIRST_BYTES, &first);
    if (!code)
        code = verify_allocate(check, SECOND_BYTES, &second);
    if (!code)
        code = write_pattern(check, first, 0, FIRST_BYTES, 1);
    if (!code)
        code = write_pattern(check, second, 0, SECOND_BYTES, 2);
    if (!code)
        code = expect_pattern(check, first, 0, FIRST_BYTES, 1);
    if (!code)
        code = expect_pattern(check, second, 0, SECOND_BYTES, 2);
    if (!code)
        code = copy_across(check, first, second);
    if (!code && check->impl->synchronize)
        code = check->impl->synchronize(check->self, check->err);
    if (second)
        check->impl->deallocate(check->self, second);
    if (first)
        check->impl->deallocate(check->self, first);
    return code;
}

static enum error_code check_large(const struct check *check)
{
    uint64_t size = check->impl->memory(check->self).free_bytes / 4;
    if (size > LARGE_BYTES_MAX)
        size = LARGE_BYTES_MAX;
    if (size < 4 * STAMP_BYTES)
        return ERROR_NONE;
    void *memory;
    enum error_code code = verify_allocate(check, size, &memory);
    const uint64_t at[] = {0, size / 2 + 1, size - STAMP_BYTES};
    for (uint64_t i = 0; !code && i < 3; i++)
        code = write_pattern(check, memory, at[i], STAMP_BYTES, 10 + i);
    for (uint64_t i = 0; !code && i < 3; i++)
        code = expect_pattern(check, memory, at[i], STAMP_BYTES, 10 + i);
    if (memory)
        check->impl->deallocate(check->self, memory);
    return code;
}

static enum error_code compare_product(const struct check *check, const float *a, const float *b,
                                       const float *out)
{
    for (uint32_t row = 0; row < MATRIX_N; row++) {
        for (uint32_t column = 0; column < MATRIX_N; column++) {
            double expected = 0;
            for (uint32_t k = 0; k < MATRIX_N; k++)
                expected += (double)a[row * MATRIX_N + k] * (double)b[k * MATRIX_N + column];
            /* |a|, |b| < 1 and 64 terms; a device that multiplies in f16 (unit roundoff 2^-11)
             * stays below 64 * 3 * 2^-11 = 0.094 even in the worst case. NaN fails too. */
            double difference = fabs((double)out[row * MATRIX_N + column] - expected);
            if (!(difference < 0.1))
                return error_set(check->err, ERROR_DEVICE,
                                 "it computes wrong results: element %u,%u of a matrix product is "
                                 "%g, should be %g",
                                 row, column, (double)out[row * MATRIX_N + column], expected);
        }
    }
    return ERROR_NONE;
}

static enum error_code check_compute(const struct check *check)
{
    if (!check->impl->multiply)
        return ERROR_NONE;
    float a[MATRIX_N * MATRIX_N], b[MATRIX_N * MATRIX_N], out[MATRIX_N * MATRIX_N] = {0};
    for (uint32_t i = 0; i < MATRIX_N * MATRIX_N; i++) {
        a[i] = (float)(2 * random_unit_at(4, i) - 1);
        b[i] = (float)(2 * random_unit_at(5, i) - 1);
    }
    enum error_code code = check->impl->multiply(check->self, MATRIX_N, a, b, out, check->err);
    if (code == ERROR_UNSUPPORTED)
        return ERROR_NONE;
    if (code)
        return error_wrap(check->err, "a matrix product");
    return compare_product(check, a, b, out);
}

static enum error_code check_claim(const struct check *check)
{
    struct device_memory claim = check->impl->memory(check->self);
    if (claim.total_bytes == 0)
        return error_set(check->err, ERROR_DEVICE, "it reports no memory");
    if (claim.free_bytes > claim.total_bytes)
        return error_set(check->err, ERROR_DEVICE,
                         "it says that %" PRIu64 " of its %" PRIu64 " bytes are free",
                         claim.free_bytes, claim.total_bytes);
    return ERROR_NONE;
}

enum error_code verify_device_quickly(const struct device_impl *impl, void *self, struct error *err)
{
    enum { BYTES = 64 * 1024 + 3 };
    struct error local;
    struct check check = {.impl = impl, .self = self, .err = err ? err : &local};
    enum error_code code = ERROR_NONE;
    check.wrote = mem_new(BYTES);
    check.read = mem_new(BYTES);
    if (!check.wrote || !check.read)
        code = error_set(check.err, ERROR_NO_MEMORY, "no host memory to verify it with");
    if (!code)
        code = check_claim(&check);
    void *memory = NULL;
    if (!code)
        code = verify_allocate(&check, BYTES, &memory);
    if (!code)
        code = write_pattern(&check, memory, 0, BYTES, 6);
    if (!code)
        code = expect_pattern(&check, memory, 0, BYTES, 6);
    if (!code && impl->synchronize)
        code = impl->synchronize(self, check.err);
    if (memory)
        impl->deallocate(self, memory);
    mem_free(check.wrote);
    mem_free(check.read);
    return code;
}

enum error_code verify_device(const struct device_impl *impl, void *self, struct error *err)
{
    struct error local;
    struct check check = {.impl = impl, .self = self, .err = err ? err : &local};
    enum error_code code = ERROR_NONE;
    check.wrote = mem_new(FIRST_BYTES);
    check.read = mem_new(FIRST_BYTES);
    if (!check.wrote || !check.read)
        code = error_set(check.err, ERROR_NO_MEMORY, "no host memory to verify it with");
    if (!code)
        code = check_claim(&check);
    if (!code)
        code = check_transfers(&check);
    if (!code)
        code = check_large(&check);
    if (!code)
        code = check_compute(&check);
    mem_free(check.wrote);
    mem_free(check.read);
    return code;
}
