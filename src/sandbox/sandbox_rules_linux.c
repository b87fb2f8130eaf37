/* Which files drivers and libraries need. A path that is not there costs nothing. */
#include "sandbox/sandbox.h"

#include <assert.h>
#include <string.h>

enum {
    FOR_CUDA = 1 << 0,
    FOR_HIP = 1 << 1,
    FOR_VULKAN = 1 << 2,
    FOR_SYCL = 1 << 3,
    FOR_OPENCL = 1 << 4,
    FOR_ANY_GPU = FOR_CUDA | FOR_HIP | FOR_VULKAN | FOR_SYCL | FOR_OPENCL,
    FOR_ALL = 1 << 5 | FOR_ANY_GPU,
};

static const struct {
    const char *backend;
    int bit;
} backend_bits[] = {
    {"cuda", FOR_CUDA}, {"hip", FOR_HIP},       {"vulkan", FOR_VULKAN},
    {"sycl", FOR_SYCL}, {"opencl", FOR_OPENCL}, {"cpu", 0},
};

/* Whole /proc and /etc would show other processes' command lines, and root every password. */
static const struct known_path {
    const char *pattern;
    int backends;
    enum sandbox_access access;
} known_paths[] = {
    /* libraries, and drivers as plugins of libraries */
    {"/lib", FOR_ALL, SANDBOX_READ},
    {"/lib64", FOR_ALL, SANDBOX_READ},
    {"/usr/lib", FOR_ALL, SANDBOX_READ},
    {"/usr/lib64", FOR_ALL, SANDBOX_READ},
    {"/usr/local/lib", FOR_ALL, SANDBOX_READ},
    {"/usr/local/cuda*", FOR_ANY_GPU, SANDBOX_READ},
    {"/opt/rocm*", FOR_ANY_GPU, SANDBOX_READ},
    {"/opt/amdgpu*", FOR_ANY_GPU, SANDBOX_READ},
    {"/opt/intel*", FOR_ANY_GPU, SANDBOX_READ},
    {"/etc/ld.so.cache", FOR_ALL, SANDBOX_READ},
    {"/etc/localtime", FOR_ALL, SANDBOX_READ},
    {"/usr/share/zoneinfo", FOR_ALL, SANDBOX_READ},
    /* which drivers there are, and how they are set */
    {"/etc/vulkan", FOR_ANY_GPU, SANDBOX_READ},
    {"/etc/OpenCL", FOR_ANY_GPU, SANDBOX_READ},
    {"/etc/drirc", FOR_ANY_GPU, SANDBOX_READ},
    {"/etc/nvidia", FOR_ANY_GPU, SANDBOX_READ},
    {"/usr/share/vulkan", FOR_ANY_GPU, SANDBOX_READ},
    {"/usr/local/share/vulkan", FOR_ANY_GPU, SANDBOX_READ},
    {"/usr/share/drirc.d", FOR_ANY_GPU, SANDBOX_READ},
    {"/usr/share/glvnd", FOR_ANY_GPU, SANDBOX_READ},
    {"/usr/share/libdrm", FOR_ANY_GPU, SANDBOX_READ},
    {"/usr/share/nvidia", FOR_ANY_GPU, SANDBOX_READ},
    /* what the machine is */
    {"/proc/self", FOR_ALL, SANDBOX_READ},
    {"/proc/cpuinfo", FOR_ALL, SANDBOX_READ},
    {"/proc/meminfo", FOR_ALL, SANDBOX_READ},
    {"/proc/pressure", FOR_ALL, SANDBOX_READ},
    {"/proc/stat", FOR_ALL, SANDBOX_READ},
    {"/proc/version", FOR_ALL, SANDBOX_READ},
    {"/proc/filesystems", FOR_ALL, SANDBOX_READ},
    {"/proc/sys/vm", FOR_ALL, SANDBOX_READ},
    {"/proc/sys/kernel", FOR_ALL, SANDBOX_READ},
    {"/proc/modules", FOR_ANY_GPU, SANDBOX_READ},
    {"/proc/devices", FOR_ANY_GPU, SANDBOX_READ},
    {"/proc/driver", FOR_ANY_GPU, SANDBOX_READ},
    {"/sys/devices", FOR_ALL, SANDBOX_READ},
    {"/sys/class", FOR_ALL, SANDBOX_READ},
    {"/sys/bus", FOR_ALL, SANDBOX_READ},
    {"/sys/dev", FOR_ALL, SANDBOX_READ},
    {"/sys/module", FOR_ALL, SANDBOX_READ},
    {"/sys/fs/cgroup", FOR_ALL, SANDBOX_READ},
    /* devices */
    {"/dev/null", FOR_ALL, SANDBOX_USE},
    {"/dev/zero", FOR_ALL, SANDBOX_USE},
    {"/dev/random", FOR_ALL, SANDBOX_READ},
    {"/dev/urandom", FOR_ALL, SANDBOX_READ},
    {"/dev/nvidia*", FOR_CUDA | FOR_VULKAN | FOR_OPENCL, SANDBOX_USE},
    {"/dev/nvhost*", FOR_CUDA | FOR_VULKAN, SANDBOX_USE}, /* Jetson */
    {"/dev/nvmap", FOR_CUDA | FOR_VULKAN, SANDBOX_USE},
    {"/dev/nvgpu", FOR_CUDA | FOR_VULKAN, SANDBOX_USE},
    {"/dev/kfd", FOR_HIP | FOR_OPENCL, SANDBOX_USE},
    {"/dev/dri", FOR_HIP | FOR_VULKAN | FOR_SYCL | FOR_OPENCL, SANDBOX_USE},
    {"/dev/mali*", FOR_VULKAN | FOR_OPENCL, SANDBOX_USE},
    {"/dev/udmabuf", FOR_VULKAN, SANDBOX_USE},
    {"/dev/dma_heap", FOR_VULKAN | FOR_OPENCL, SANDBOX_USE},
    {"/dev/dxg", FOR_ANY_GPU, SANDBOX_USE}, /* Windows below */
};

static void rules_add(struct sandbox_rules *rules, const char *path, size_t length, bool is_pattern,
                      enum sandbox_access access)
{
    if (!length)
        return;
    if (rules->n == SANDBOX_RULES_MAX) {
        rules->overflows = true;
        return;
    }
    rules->list[rules->n++] = (struct sandbox_rule){path, length, is_pattern, access};
}

static int rules_backends(const char *backend)
{
    for (size_t i = 0; backend && i < sizeof backend_bits / sizeof *backend_bits; i++) {
        if (strcmp(backend, backend_bits[i].backend) == 0)
            return backend_bits[i].bit;
    }
    return FOR_ANY_GPU; /* one that this table does not know may need any of them */
}

/* A list of paths with ':' between them. Of a file its folder, for it names others beside it. */
static void rules_add_list(struct sandbox_rules *rules, const char *list, bool of_files)
{
    while (*list) {
        size_t length = strcspn(list, ":");
        const char *next = list + length + (list[length] == ':');
        for (; of_files && length && list[length - 1] != '/';)
            length--;
        rules_add(rules, list, length, false, SANDBOX_READ);
        list = next;
    }
}

/* These say where drivers and libraries are. They come from who started the node. */
static void rules_add_environment(struct sandbox_rules *rules, char *const *environment)
{
    static const struct {
        const char *name;
        bool of_files;
    } lists[] = {
        {"LD_LIBRARY_PATH=", false},    {"VK_DRIVER_FILES=", true},  {"VK_ICD_FILENAMES=", true},
        {"VK_ADD_DRIVER_FILES=", true}, {"OCL_ICD_VENDORS=", false},
    };
    for (; environment && *environment; environment++) {
        for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
            const size_t length = strlen(lists[i].name);
            if (strncmp(*environment, lists[i].name, length) == 0)
                rules_add_list(rules, *environment + length, lists[i].of_files);
        }
    }
}

void sandbox_rules_make(const struct sandbox_need *need, struct sandbox_rules *out)
{
    assert(need && out && (!need->n_files || need->files));
    *out = (struct sandbox_rules){0};
    const int backends = rules_backends(need->backend);
    for (size_t i = 0; i < sizeof known_paths / sizeof *known_paths; i++) {
        const struct known_path *known = &known_paths[i];
        if (need->work == SANDBOX_DEVICE &&
            (known->backends == FOR_ALL || (known->backends & backends)))
            rules_add(out, known->pattern, strlen(known->pattern), true, known->access);
    }
    if (need->work == SANDBOX_DEVICE)
        rules_add_environment(out, need->environment);
    for (uint32_t i = 0; i < need->n_files; i++) {
        if (need->files[i])
            rules_add(out, need->files[i], strlen(need->files[i]), false, SANDBOX_READ);
    }
    if (need->folder)
        rules_add(out, need->folder, strlen(need->folder), false, SANDBOX_KEEP);
}
