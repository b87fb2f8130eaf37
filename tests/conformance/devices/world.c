#include "world.h"

#include "base/mem.h"
#include "base/random.h"
#include "public/context.h"

#include <stdlib.h>
#include <string.h>

struct medley_gpu *all_devices;
struct medley_error last_error;

int open_devices(void **state)
{
    (void)state;
    unsetenv("MEDLEY_BACKEND");
    struct medley_device_request request = {0};
    struct medley_gpu_options options = {.cpu_only = !getenv("GGML_VK_VISIBLE_DEVICES"),
                                         .sim_file = getenv("MEDLEY_TEST_SIM")};
    medley_gpu_open(NULL, &options, &all_devices, &request, NULL);
    if (medley_device_wait(&request)) {
        print_error("%s\n", request.error.text);
        return -1;
    }
    for (uint32_t i = 0; i < medley_gpu_device_count(all_devices); i++)
        print_message("# device %s: %s\n", device_id(i), medley_device_info(device_at(i))->name);
    const char *visible = getenv("GGML_VK_VISIBLE_DEVICES");
    uint32_t n_wanted = !visible ? 1 : strcmp(visible, "0,0") == 0 ? 3 : 2;
    n_wanted += options.sim_file ? 2 : 0;
    if (medley_gpu_device_count(all_devices) < n_wanted) {
        print_error("only %u of %u devices are there\n", medley_gpu_device_count(all_devices),
                    n_wanted);
        return -1;
    }
    return 0;
}

int close_devices(void **state)
{
    (void)state;
    medley_gpu_close(all_devices, NULL, NULL);
    all_devices = NULL;
    return 0;
}

uint32_t device_count(void)
{
    return medley_gpu_device_count(all_devices);
}

struct medley_device *device_at(uint32_t index)
{
    return medley_gpu_device(all_devices, index);
}

const char *device_id(uint32_t index)
{
    return medley_device_info(device_at(index))->id;
}

/* ---- operations ------------------------------------------------------------------------ */

static enum medley_error_code wait_for(struct medley_device_request *request)
{
    enum medley_error_code code = medley_device_wait(request);
    assert_int_equal(code, request->error.code);
    assert_int_equal(code == 0, request->error.text[0] == 0);
    last_error = request->error;
    return code;
}

enum medley_error_code try_alloc(struct medley_device *device, uint64_t size,
                                 struct medley_device_buffer *out)
{
    struct medley_device_request request = {0};
    medley_device_alloc(device, &request, size, NULL);
    enum medley_error_code code = wait_for(&request);
    *out = request.buffer;
    assert_int_equal(code == 0, out->handle != 0);
    return code;
}

struct medley_device_buffer alloc(struct medley_device *device, uint64_t size)
{
    struct medley_device_buffer buffer;
    assert_int_equal(try_alloc(device, size, &buffer), MEDLEY_ERROR_NONE);
    return buffer;
}

enum medley_error_code try_free(struct medley_device *device, struct medley_device_buffer buffer)
{
    struct medley_device_request request = {0};
    medley_device_free(device, &request, buffer, NULL);
    return wait_for(&request);
}

enum medley_error_code try_write(struct medley_device *device, struct medley_device_buffer to,
                                 uint64_t offset, const void *from, uint64_t size)
{
    struct medley_device_request request = {0};
    medley_device_write(device, &request, to, offset, from, size, NULL);
    return wait_for(&request);
}

enum medley_error_code try_read(struct medley_device *device, struct medley_device_buffer from,
                                uint64_t offset, void *to, uint64_t size)
{
    struct medley_device_request request = {0};
    medley_device_read(device, &request, from, offset, to, size, NULL);
    return wait_for(&request);
}

enum medley_error_code try_copy(struct medley_device *device_from, struct medley_device_buffer from,
                                uint64_t offset_from, struct medley_device *device_to,
                                struct medley_device_buffer to, uint64_t offset_to, uint64_t size,
                                enum medley_copy_path *path)
{
    struct medley_device_request request = {0};
    medley_device_copy(device_from, &request, from, offset_from, device_to, to, offset_to, size,
                       NULL);
    enum medley_error_code code = wait_for(&request);
    if (path)
        *path = request.path;
    return code;
}

void fill(void *bytes, size_t size, uint64_t seed)
{
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = random_mix((seed << 32) + i);
        memcpy((char *)bytes + i, &word, size - i < 8 ? size - i : 8);
    }
}

/* ---- holding a device's thread ---------------------------------------------------------- */

struct hold {
    struct device_job job;
    uv_sem_t entered, leave;
};

static void wait_to_leave(struct device_job *job)
{
    struct hold *hold = (struct hold *)job;
    uv_sem_post(&hold->entered);
    uv_sem_wait(&hold->leave);
    uv_sem_post(&hold->entered); /* the last touch */
}

struct hold *hold_begin(struct medley_device *device)
{
    struct hold *hold = mem_new(sizeof *hold);
    assert_non_null(hold);
    hold->job.run = wait_to_leave;
    assert_int_equal(uv_sem_init(&hold->entered, 0), 0);
    assert_int_equal(uv_sem_init(&hold->leave, 0), 0);
    device_submit(device->device, &hold->job);
    uv_sem_wait(&hold->entered);
    return hold;
}

void hold_end(struct hold *hold)
{
    uv_sem_post(&hold->leave);
    uv_sem_wait(&hold->entered);
    uv_sem_destroy(&hold->entered);
    uv_sem_destroy(&hold->leave);
    mem_free(hold);
}
