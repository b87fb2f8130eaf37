/* A library in the place of Vulkan's loader: three GPUs. A Radeon at 0000:c1:00.0 with 96 units and
 * an NVIDIA at 0000:01:00.0 with 128, which form a group; a Mali without a place, with 10. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct chained {
    uint32_t what;
    struct chained *next;
};
struct extension {
    char name[256];
    uint32_t version;
};
struct group {
    struct chained head;
    uint32_t n_devices;
    const void *devices[32];
    uint32_t subset;
};

EXPORT int vkCreateInstance(const void *how, const void *allocator, void **out);
EXPORT void vkDestroyInstance(void *instance, const void *allocator);
EXPORT int vkEnumeratePhysicalDevices(void *instance, uint32_t *count, const void **out);
EXPORT int vkEnumerateDeviceExtensionProperties(const void *device, const char *layer,
                                                uint32_t *count, struct extension *out);
EXPORT void vkGetPhysicalDeviceProperties2(const void *device, struct chained *out);
EXPORT int vkEnumeratePhysicalDeviceGroups(void *instance, uint32_t *count, struct group *out);

static const struct standin {
    const char *name, *driver, *info;
    uint32_t bus, units, what, word; /* bus 0: it does not tell */
    const char *extension;
} standins[] = {
    {"AMD Radeon (RADV NAVI31)", "radv", "Mesa 25.0.7-2", 0xc1, 96, 1000227000, 1,
     "VK_AMD_shader_core_properties2"},
    {"NVIDIA GeForce", "NVIDIA", "570.86.16", 1, 128, 1000154001, 0, "VK_NV_shader_sm_builtins"},
    {"Mali", "panvk", "Mesa 25.0\n", 0, 10, 1000497001, 2, "VK_ARM_shader_core_builtins"},
};
enum { STANDINS = sizeof standins / sizeof *standins };

int vkCreateInstance(const void *how, const void *allocator, void **out)
{
    *out = (void *)(uintptr_t)standins;
    return how && !allocator ? 0 : -3;
}

void vkDestroyInstance(void *instance, const void *allocator)
{
}

int vkEnumeratePhysicalDevices(void *instance, uint32_t *count, const void **out)
{
    for (uint32_t i = 0; i < STANDINS && i < *count; i++)
        out[i] = &standins[i];
    *count = STANDINS;
    return 0;
}

int vkEnumerateDeviceExtensionProperties(const void *device, const char *layer, uint32_t *count,
                                         struct extension *out)
{
    const struct standin *standin = device;
    uint32_t n = 0;
    snprintf(out[n++].name, sizeof out->name, "%s", standin->extension);
    if (standin->bus)
        snprintf(out[n++].name, sizeof out->name, "VK_EXT_pci_bus_info");
    *count = n;
    return 0;
}

/* Numbers and texts at their places in the structures of the specification. */
static void put(struct chained *out, size_t at, uint32_t number)
{
    memcpy((char *)out + at, &number, sizeof number);
}

void vkGetPhysicalDeviceProperties2(const void *device, struct chained *out)
{
    const struct standin *standin = device;
    put(out, 16, 1u << 22 | 3 << 12);
    snprintf((char *)out + 36, 256, "%s", standin->name);
    put(out, 16 + 296 + 232, 1024); /* maxComputeWorkGroupInvocations */
    for (struct chained *next = out->next; next; next = next->next) {
        if (next->what == 1000196000) {
            snprintf((char *)next + 20, 256, "%s", standin->driver);
            snprintf((char *)next + 276, 256, "%s", standin->info);
        } else if (next->what == 1000212000) {
            put(next, 16, 0);
            put(next, 20, standin->bus);
        } else if (next->what == standin->what) {
            put(next, 16 + 4 * standin->word, standin->units);
        }
    }
}

int vkEnumeratePhysicalDeviceGroups(void *instance, uint32_t *count, struct group *out)
{
    if (*count < 2 || out[0].head.what != 1000070000)
        return -3;
    out[0].n_devices = 2;
    out[0].devices[0] = &standins[0];
    out[0].devices[1] = &standins[1];
    out[1].n_devices = 1;
    out[1].devices[0] = &standins[2];
    *count = 2;
    return 0;
}
