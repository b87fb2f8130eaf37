/* A Vulkan driver that is Mesa's lavapipe under the name and version that it is built with
 * (STANDIN_NAME, STANDIN_VERSION), and that calls itself a discrete GPU, so that ggml lists it
 * unasked. Nothing is computed here. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef void (*any_function)(void);
typedef any_function (*get_function)(void *instance, const char *name);

/* The beginning of VkPhysicalDeviceProperties, and what a VkPhysicalDeviceProperties2 and the
 * structures behind it begin with: Vulkan 1.1, chapters 5.1 and 3.7. */
struct properties {
    uint32_t api, driver, vendor, device, type;
    char name[256];
};
struct chained {
    uint32_t what;
    struct chained *next;
};
struct driver_properties {
    struct chained head;
    uint32_t id;
    char name[256], info[256];
};
enum { DRIVER_PROPERTIES = 1000196000, DISCRETE_GPU = 2 };

EXPORT any_function vk_icdGetInstanceProcAddr(void *instance, const char *name);
EXPORT any_function vk_icdGetPhysicalDeviceProcAddr(void *instance, const char *name);
EXPORT int vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version);

static void (*real_properties)(void *device, struct properties *out);
static void (*real_properties2)(void *device, struct chained *out);

static void *lavapipe(const char *name)
{
    static void *library;
    if (!library)
        library = dlopen("libvulkan_lvp.so", RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, name) : NULL;
}

static void rename_device(struct properties *out)
{
    out->driver = STANDIN_VERSION;
    out->type = DISCRETE_GPU;
    snprintf(out->name, sizeof out->name, "%s", STANDIN_NAME);
}

static void standin_properties(void *device, struct properties *out)
{
    real_properties(device, out);
    rename_device(out);
}

static void standin_properties2(void *device, struct chained *out)
{
    real_properties2(device, out);
    rename_device((struct properties *)(void *)(out + 1));
    for (struct chained *at = out->next; at; at = at->next) {
        if (at->what == DRIVER_PROPERTIES) {
            struct driver_properties *driver = (struct driver_properties *)(void *)at;
            snprintf(driver->info, sizeof driver->info, "stand-in %d", STANDIN_VERSION);
        }
    }
}

static any_function replace(const char *name, any_function real)
{
    if (real && strcmp(name, "vkGetPhysicalDeviceProperties") == 0) {
        real_properties = (void (*)(void *, struct properties *))real;
        return (any_function)standin_properties;
    }
    if (real && strncmp(name, "vkGetPhysicalDeviceProperties2", 30) == 0) { /* also …2KHR */
        real_properties2 = (void (*)(void *, struct chained *))real;
        return (any_function)standin_properties2;
    }
    return real;
}

any_function vk_icdGetInstanceProcAddr(void *instance, const char *name)
{
    get_function get = (get_function)(uintptr_t)lavapipe("vk_icdGetInstanceProcAddr");
    return get ? replace(name, get(instance, name)) : NULL;
}

any_function vk_icdGetPhysicalDeviceProcAddr(void *instance, const char *name)
{
    get_function get = (get_function)(uintptr_t)lavapipe("vk_icdGetPhysicalDeviceProcAddr");
    return get ? replace(name, get(instance, name)) : NULL;
}

int vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version)
{
    int (*negotiate)(uint32_t *) =
        (int (*)(uint32_t *))(uintptr_t)lavapipe("vk_icdNegotiateLoaderICDInterfaceVersion");
    return negotiate ? negotiate(version) : -3; /* VK_ERROR_INITIALIZATION_FAILED */
}
