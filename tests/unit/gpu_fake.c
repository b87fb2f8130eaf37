#include "gpu_fake.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { MIB = 1024 * 1024 };

struct fake {
    struct fake_family *family;
    uint8_t *shared; /* of FAKE_ALIASES */
};

struct fake_memory {
    uint64_t size;
    uint8_t *bytes;
};

static uint32_t fake_list(const void *family)
{
    (void)family;
    return 1;
}

static void fake_get(const void *family, uint32_t index, struct device_info *info)
{
    (void)family, (void)index;
    *info = (struct device_info){.id = "fake0", .name = "Fake", .backend = "fake"};
}

static enum error_code fake_initialize(const void *family, uint32_t index,
                                       const struct gpu_options *options, void **self,
                                       struct error *err)
{
    (void)index, (void)options;
    struct fake_family *mine = (struct fake_family *)(uintptr_t)family;
    while (mine->fault == FAKE_HANGS)
        pause();
    if (mine->fault == FAKE_START_FAILS)
        return error_set(err, ERROR_DEVICE, "the fake does not start");
    struct fake *fake = mem_new(sizeof *fake);
    if (!fake)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    fake->family = mine;
    mine->n_open++;
    *self = fake;
    return ERROR_NONE;
}

static void fake_shutdown(void *self)
{
    struct fake *fake = self;
    fake->family->n_open--;
    mem_free(fake->shared);
    mem_free(fake);
}

static struct device_memory fake_memory(const void *self)
{
    enum fake_fault fault = ((const struct fake *)self)->family->fault;
    if (fault == FAKE_NO_MEMORY)
        return (struct device_memory){0};
    if (fault == FAKE_FREE_ABOVE_TOTAL)
        return (struct device_memory){.free_bytes = 2 * MIB, .total_bytes = MIB};
    return (struct device_memory){.free_bytes = 1024ull * MIB, .total_bytes = 1024ull * MIB};
}

static enum error_code fake_allocate(void *self, uint64_t size, void **out, struct error *err)
{
    struct fake *fake = self;
    enum fake_fault fault = fake->family->fault;
    if (fault == FAKE_ALLOC_FAILS || (fault == FAKE_SMALLER_THAN_SAID && size > 4 * MIB))
        return error_set(err, ERROR_NO_MEMORY, "the fake has no more");
    struct fake_memory *memory = mem_new(sizeof *memory);
    uint8_t *bytes = mem_new(size);
    if (!memory || !bytes) {
        mem_free(memory);
        mem_free(bytes);
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    }
    *memory = (struct fake_memory){.size = size, .bytes = bytes};
    if (fault == FAKE_ALIASES) {
        mem_free(bytes);
        if (!fake->shared)
            fake->shared = mem_new(128 * MIB);
        memory->bytes = fake->shared;
    }
    fake->family->n_allocated++;
    *out = memory;
    return ERROR_NONE;
}

static void fake_deallocate(void *self, void *what)
{
    struct fake *fake = self;
    struct fake_memory *memory = what;
    fake->family->n_allocated--;
    if (memory->bytes != fake->shared)
        mem_free(memory->bytes);
    mem_free(memory);
}

/* Bytes from `offset` on that lie together in the memory that is really there. */
static uint64_t run_of(const struct fake *fake, uint64_t *offset, uint64_t size)
{
    if (fake->family->fault != FAKE_WRAPS)
        return size;
    *offset %= 8 * MIB;
    return size < 8 * MIB - *offset ? size : 8 * MIB - *offset;
}

static enum error_code fake_copy_to(void *self, void *to, uint64_t offset, const void *from,
                                    uint64_t size, struct error *err)
{
    struct fake *fake = self;
    if (fake->family->fault == FAKE_WRITE_FAILS)
        return error_set(err, ERROR_DEVICE, "the fake does not write");
    if (fake->family->fault == FAKE_DROPS_WRITES && offset)
        return ERROR_NONE;
    for (uint64_t done = 0, run; done < size; done += run) {
        uint64_t at = offset + done;
        run = run_of(fake, &at, size - done);
        memcpy(((struct fake_memory *)to)->bytes + at, (const uint8_t *)from + done, run);
    }
    return ERROR_NONE;
}

static enum error_code fake_copy_from(void *self, void *from, uint64_t offset, void *to,
                                      uint64_t size, struct error *err)
{
    struct fake *fake = self;
    if (fake->family->fault == FAKE_READ_FAILS)
        return error_set(err, ERROR_DEVICE, "the fake does not read");
    for (uint64_t done = 0, run; done < size; done += run) {
        uint64_t at = offset + done;
        run = run_of(fake, &at, size - done);
        memcpy((uint8_t *)to + done, ((struct fake_memory *)from)->bytes + at, run);
    }
    if (fake->family->fault == FAKE_FLIPS_A_BIT)
        ((uint8_t *)to)[size - 1] ^= 4;
    return ERROR_NONE;
}

static enum error_code fake_copy_between(void *self, void *from, uint64_t offset_from, void *other,
                                         void *to, uint64_t offset_to, uint64_t size,
                                         struct error *err)
{
    (void)other;
    struct fake_family *family = ((struct fake *)self)->family;
    if (family->shares_no_path)
        return error_set(err, ERROR_UNSUPPORTED, "the fake shares no path");
    family->n_direct++;
    const struct fake_memory *source = from, *target = to;
    uint64_t shift = family->fault == FAKE_COPY_IS_OFF_BY_ONE;
    memmove(target->bytes + offset_to, source->bytes + offset_from + shift, size);
    return ERROR_NONE;
}

static enum error_code fake_synchronize(void *self, struct error *err)
{
    if (((struct fake *)self)->family->fault == FAKE_SYNC_FAILS)
        return error_set(err, ERROR_DEVICE, "the fake is lost");
    return ERROR_NONE;
}

static struct reading fake_temperature(const void *self)
{
    (void)self;
    return (struct reading){41000, true};
}

static enum error_code fake_multiply(void *self, uint32_t n, const float *a, const float *b,
                                     float *out, struct error *err)
{
    enum fake_fault fault = ((struct fake *)self)->family->fault;
    if (fault == FAKE_PRODUCT_FAILS)
        return error_set(err, ERROR_DEVICE, "the fake does not compute");
    for (uint32_t i = 0; i < n * n; i++) {
        out[i] = 0;
        for (uint32_t k = 0; k < n; k++)
            out[i] += a[i / n * n + k] * b[k * n + i % n];
    }
    if (fault == FAKE_PRODUCT_IS_WRONG)
        out[n + 1] += 1;
    if (fault == FAKE_PRODUCT_IS_NAN)
        out[n * n - 1] = nanf("");
    return ERROR_NONE;
}

const struct device_impl fake_impl = {
    .name = "fake",
    .list = fake_list,
    .get = fake_get,
    .initialize = fake_initialize,
    .shutdown = fake_shutdown,
    .allocate = fake_allocate,
    .deallocate = fake_deallocate,
    .copy_to = fake_copy_to,
    .copy_from = fake_copy_from,
    .copy_between = fake_copy_between,
    .synchronize = fake_synchronize,
    .memory = fake_memory,
    .temperature_mc = fake_temperature,
    .multiply = fake_multiply,
};

const struct device_impl fake_impl_minimal = {
    .name = "minimal",
    .list = fake_list,
    .get = fake_get,
    .initialize = fake_initialize,
    .shutdown = fake_shutdown,
    .allocate = fake_allocate,
    .deallocate = fake_deallocate,
    .copy_to = fake_copy_to,
    .copy_from = fake_copy_from,
    .memory = fake_memory,
};
