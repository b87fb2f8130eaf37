/* Reading from a device without the detour through a staging buffer.
 *
 * ggml's Vulkan backend reads in two copies: device -> its pinned staging buffer -> destination. Of
 * a software device, whose copies are the CPU's, that is half of memcpy's speed (0.44 to 0.47 x).
 * But the driver can be shown the destination's pages (VK_EXT_external_memory_host), and then one
 * copy does it. */
#include "gpu/device_ggml_impl.h"

enum {
    PAGE_BYTES = 4096,             /* what drivers import: whole pages */
    PAYS_FROM_BYTES = 1024 * 1024, /* showing and forgetting the pages takes 40 microseconds */
};

/* from[size at offset] -> whole pages */
static bool copy_to_pages(ggml_backend_buffer_t pages, struct ggml_tensor *from, uint64_t offset,
                          uint64_t size)
{
    struct ggml_context *ctx = ggml_init(
        (struct ggml_init_params){.mem_size = 2 * ggml_tensor_overhead(), .no_alloc = true});
    if (!ctx)
        return false;
    struct ggml_tensor *source = ggml_view_1d(ctx, from, (int64_t)size, offset);
    struct ggml_tensor *target = ggml_new_tensor_1d(ctx, GGML_TYPE_I8, (int64_t)size);
    bool ready = ggml_backend_view_init(source) == GGML_STATUS_SUCCESS &&
                 ggml_backend_tensor_alloc(pages, target, ggml_backend_buffer_get_base(pages)) ==
                     GGML_STATUS_SUCCESS;
    if (ready)
        ggml_backend_tensor_copy(source, target);
    ggml_free(ctx);
    return ready;
}

bool device_ggml_read_pages(ggml_backend_dev_t dev, struct ggml_tensor *from, uint64_t offset,
                            void *to, uint64_t size)
{
    if (size < PAYS_FROM_BYTES)
        return false;
    uint64_t before = -(uintptr_t)to % PAGE_BYTES; /* bytes up to the first whole page */
    uint64_t whole = (size - before) / PAGE_BYTES * PAGE_BYTES;
    char *first_page = (char *)to + before;
    ggml_backend_buffer_t pages =
        ggml_backend_dev_buffer_from_host_ptr(dev, first_page, whole, whole);
    if (!pages)
        return false;
    bool copied = copy_to_pages(pages, from, offset + before, whole);
    ggml_backend_buffer_free(pages);
    uint64_t after = size - before - whole;
    if (copied && before)
        ggml_backend_tensor_get(from, to, offset, before);
    if (copied && after)
        ggml_backend_tensor_get(from, first_page + whole, offset + before + whole, after);
    return copied;
}
