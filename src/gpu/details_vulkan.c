/* Vulkan's own interface, through its loader, which is opened at run time.
 *
 * Source: the Vulkan 1.4 specification, chapters "Initialization", "Devices and Queues" and
 * "Limits". The structures and numbers below are the stable part of its binary interface, declared
 * here so that no header is needed. */
#include "gpu/details.h"
#include "sensors/library.h"
#include "sensors/pci.h"

#include "base/limits.h"
#include "base/mem.h"

#include <string.h>

enum { VULKAN_DEVICES_MAX = LIMIT_DEVICES, VULKAN_EXTENSIONS_MAX = 1024 };
enum { VULKAN_1_1 = 1 << 22 | 1 << 12 };

enum vulkan_structure { /* VkStructureType */
                        VULKAN_APPLICATION_INFO = 0,
                        VULKAN_INSTANCE_CREATE_INFO = 1,
                        VULKAN_PROPERTIES_2 = 1000059001,
                        VULKAN_GROUP_PROPERTIES = 1000070000,
                        VULKAN_SM_BUILTINS_NV = 1000154001,
                        VULKAN_DRIVER_PROPERTIES = 1000196000,
                        VULKAN_PCI_BUS_INFO = 1000212000,
                        VULKAN_SHADER_CORE_2_AMD = 1000227000,
                        VULKAN_CORE_BUILTINS_ARM = 1000497001,
};

typedef struct vulkan_instance *vulkan_instance; /* VkInstance, VkPhysicalDevice: opaque */
typedef struct vulkan_physical *vulkan_physical;

struct vulkan_application { /* VkApplicationInfo */
    uint32_t what;
    const void *next;
    const char *name;
    uint32_t version;
    const char *engine;
    uint32_t engine_version, api;
};
struct vulkan_creation { /* VkInstanceCreateInfo */
    uint32_t what;
    const void *next;
    uint32_t flags;
    const struct vulkan_application *application;
    uint32_t n_layers;
    const char *const *layers;
    uint32_t n_extensions;
    const char *const *extensions;
};
struct vulkan_limits { /* VkPhysicalDeviceLimits */
    uint32_t images_and_descriptors[12];
    uint64_t granularity[2];
    uint32_t stages[39];
    uint32_t work_groups[3], work_group_invocations_max, work_group_size[3];
    uint32_t rest[64];
};
_Static_assert(offsetof(struct vulkan_limits, work_group_invocations_max) == 232, "its place");
_Static_assert(sizeof(struct vulkan_limits) == 504, "VkPhysicalDeviceLimits");
struct vulkan_properties { /* VkPhysicalDeviceProperties2 */
    uint32_t what;
    void *next;
    uint32_t api, driver, vendor, device, type;
    char name[256];
    uint8_t cache_id[16];
    struct vulkan_limits limits;
    uint32_t sparse[5];
};
_Static_assert(sizeof(struct vulkan_properties) == 16 + 824, "VkPhysicalDeviceProperties");
struct vulkan_driver { /* VkPhysicalDeviceDriverProperties */
    uint32_t what;
    void *next;
    uint32_t id;
    char name[256], info[256];
    uint8_t conformance[4];
};
struct vulkan_pci { /* VkPhysicalDevicePCIBusInfoPropertiesEXT */
    uint32_t what;
    void *next;
    uint32_t domain, bus, device, function;
};
struct vulkan_units { /* the beginning that the vendors' structures of units share */
    uint32_t what;
    void *next;
    uint32_t words[4]; /* which of them counts units differs */
};
struct vulkan_group { /* VkPhysicalDeviceGroupProperties */
    uint32_t what;
    void *next;
    uint32_t n_devices;
    vulkan_physical devices[32];
    uint32_t subset_allocation;
};
struct vulkan_extension { /* VkExtensionProperties */
    char name[256];
    uint32_t version;
};

struct vulkan {
    void *library;
    vulkan_instance instance;
    int (*create_instance)(const struct vulkan_creation *how, const void *allocator,
                           vulkan_instance *out);
    void (*destroy_instance)(vulkan_instance instance, const void *allocator);
    int (*list)(vulkan_instance instance, uint32_t *count, vulkan_physical *out);
    int (*extensions)(vulkan_physical device, const char *layer, uint32_t *count,
                      struct vulkan_extension *out);
    void (*properties)(vulkan_physical device, struct vulkan_properties *out);
    int (*groups)(vulkan_instance instance, uint32_t *count, struct vulkan_group *out);
};

/* Where a vendor tells how many compute units there are. */
static const struct vulkan_unit_source {
    const char *extension;
    uint32_t what;
    uint32_t word;
} vulkan_unit_sources[] = {
    {"VK_NV_shader_sm_builtins", VULKAN_SM_BUILTINS_NV, 0},          /* shaderSMCount */
    {"VK_AMD_shader_core_properties2", VULKAN_SHADER_CORE_2_AMD, 1}, /* activeComputeUnitCount */
    {"VK_ARM_shader_core_builtins", VULKAN_CORE_BUILTINS_ARM, 2},    /* shaderCoreCount */
};

/* ---- opening ----------------------------------------------------------------------------- */

static bool vulkan_bind(struct vulkan *vulkan)
{
    const struct library_symbol symbols[] = {
        {&vulkan->create_instance, "vkCreateInstance", NULL},
        {&vulkan->destroy_instance, "vkDestroyInstance", NULL},
        {&vulkan->list, "vkEnumeratePhysicalDevices", NULL},
        {&vulkan->extensions, "vkEnumerateDeviceExtensionProperties", NULL},
        {&vulkan->properties, "vkGetPhysicalDeviceProperties2", NULL},
        {&vulkan->groups, "vkEnumeratePhysicalDeviceGroups", NULL},
    };
    library_bind(vulkan->library, symbols, sizeof symbols / sizeof *symbols);
    return vulkan->create_instance && vulkan->destroy_instance && vulkan->list &&
           vulkan->extensions && vulkan->properties && vulkan->groups;
}

static void vulkan_close(struct vulkan *vulkan)
{
    if (vulkan->instance)
        vulkan->destroy_instance(vulkan->instance, NULL);
    library_close(vulkan->library);
}

/* False: there is no loader, or one that is older than Vulkan 1.1. */
static bool vulkan_open(const char *path, struct vulkan *vulkan)
{
    char unused[256];
    *vulkan = (struct vulkan){.library = library_open(path, unused, sizeof unused)};
    if (!vulkan->library)
        return false;
    const struct vulkan_application application = {
        .what = VULKAN_APPLICATION_INFO, .name = "medley", .api = VULKAN_1_1};
    const struct vulkan_creation how = {.what = VULKAN_INSTANCE_CREATE_INFO,
                                        .application = &application};
    if (vulkan_bind(vulkan) && vulkan->create_instance(&how, NULL, &vulkan->instance) == 0)
        return true;
    vulkan->instance = NULL;
    vulkan_close(vulkan);
    return false;
}

/* ---- one device ---------------------------------------------------------------------------- */

static bool vulkan_has(const struct vulkan_extension *extensions, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strncmp(extensions[i].name, name, sizeof extensions[i].name) == 0)
            return true;
    }
    return false;
}

/* All that one question answers; what its driver does not have stays zero. */
struct vulkan_answer {
    struct vulkan_properties properties;
    struct vulkan_driver driver;
    struct vulkan_pci pci;
    struct vulkan_units units;
    uint32_t unit_word;
    bool has_driver, has_pci, has_units;
};

static void vulkan_chain(struct vulkan_answer *answer, uint32_t what, void *structure,
                         void **structure_next)
{
    *(uint32_t *)structure = what;
    *structure_next = answer->properties.next;
    answer->properties.next = structure;
}

/* `extensions`: room for VULKAN_EXTENSIONS_MAX. */
static bool vulkan_ask(const struct vulkan *vulkan, vulkan_physical device,
                       struct vulkan_extension *extensions, struct vulkan_answer *answer)
{
    uint32_t n = VULKAN_EXTENSIONS_MAX;
    *answer = (struct vulkan_answer){.properties.what = VULKAN_PROPERTIES_2};
    if (vulkan->extensions(device, NULL, &n, extensions) < 0)
        return false;
    /* Drivers of Vulkan 1.2 have driver properties without naming the extension. */
    struct vulkan_properties version = {.what = VULKAN_PROPERTIES_2};
    vulkan->properties(device, &version);
    answer->has_driver = (version.api >> 12 & 0x3ff) >= 2 || version.api >> 22 > 1 ||
                         vulkan_has(extensions, n, "VK_KHR_driver_properties");
    answer->has_pci = vulkan_has(extensions, n, "VK_EXT_pci_bus_info");
    if (answer->has_driver)
        vulkan_chain(answer, VULKAN_DRIVER_PROPERTIES, &answer->driver, &answer->driver.next);
    if (answer->has_pci)
        vulkan_chain(answer, VULKAN_PCI_BUS_INFO, &answer->pci, &answer->pci.next);
    for (size_t i = 0; i < sizeof vulkan_unit_sources / sizeof *vulkan_unit_sources; i++) {
        const struct vulkan_unit_source *source = &vulkan_unit_sources[i];
        if (answer->has_units || !vulkan_has(extensions, n, source->extension))
            continue;
        vulkan_chain(answer, source->what, &answer->units, &answer->units.next);
        answer->unit_word = source->word;
        answer->has_units = true;
    }
    vulkan->properties(device, &answer->properties);
    return true;
}

/* By its place on the bus; a driver that does not tell, by its name. */
static bool vulkan_is(const struct vulkan_answer *answer, const struct device_info *info)
{
    struct pci_address pci;
    if (answer->has_pci && pci_parse(info->pci, &pci))
        return pci.domain == answer->pci.domain && pci.bus == answer->pci.bus &&
               pci.device == answer->pci.device && pci.function == answer->pci.function;
    return strncmp(answer->properties.name, info->name, sizeof info->name - 1) == 0;
}

static void vulkan_tell(const struct vulkan_answer *answer, bool in_group, struct device_info *info)
{
    if (answer->has_driver) {
        details_set_text(info->driver_name, sizeof info->driver_name, answer->driver.name);
        details_set_text(info->driver, sizeof info->driver, answer->driver.info);
    }
    const uint32_t threads = answer->properties.limits.work_group_invocations_max;
    if (threads)
        details_set_number(&info->threads_per_block_max, UNIT_COUNT, threads);
    if (answer->has_units && answer->units.words[answer->unit_word])
        details_set_number(&info->compute_units, UNIT_COUNT,
                           answer->units.words[answer->unit_word]);
    if (in_group)
        details_set_number(&info->peer_to_peer, UNIT_COUNT, 1);
}

/* Devices of one group can be one logical device, whose parts reach each other's memory. */
static bool vulkan_in_group(const struct vulkan_group *groups, uint32_t count,
                            vulkan_physical device)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; groups[i].n_devices > 1 && k < groups[i].n_devices && k < 32; k++) {
            if (groups[i].devices[k] == device)
                return true;
        }
    }
    return false;
}

/* ---- all of them --------------------------------------------------------------------------- */

struct vulkan_room {
    vulkan_physical devices[VULKAN_DEVICES_MAX];
    struct vulkan_group groups[VULKAN_DEVICES_MAX];
    struct vulkan_extension extensions[VULKAN_EXTENSIONS_MAX];
};

static void vulkan_fill(const struct vulkan *vulkan, struct vulkan_room *room,
                        struct device_info *const *infos, uint32_t count)
{
    uint32_t n_devices = VULKAN_DEVICES_MAX, n_groups = VULKAN_DEVICES_MAX;
    if (vulkan->list(vulkan->instance, &n_devices, room->devices) < 0)
        return;
    for (uint32_t i = 0; i < n_groups; i++)
        room->groups[i].what = VULKAN_GROUP_PROPERTIES;
    if (vulkan->groups(vulkan->instance, &n_groups, room->groups) < 0)
        n_groups = 0;
    for (uint32_t i = 0; i < n_devices; i++) {
        struct vulkan_answer answer;
        if (!vulkan_ask(vulkan, room->devices[i], room->extensions, &answer))
            continue;
        const bool in_group = vulkan_in_group(room->groups, n_groups, room->devices[i]);
        for (uint32_t k = 0; k < count; k++) {
            if (strcmp(infos[k]->backend, "vulkan") == 0 && vulkan_is(&answer, infos[k]))
                vulkan_tell(&answer, in_group, infos[k]);
        }
    }
}

void details_fill_vulkan(const struct details_places *places, struct device_info *const *infos,
                         uint32_t count)
{
    bool wanted = false;
    for (uint32_t i = 0; i < count; i++)
        wanted |= strcmp(infos[i]->backend, "vulkan") == 0;
    struct vulkan vulkan;
    if (!wanted ||
        !vulkan_open(places->vulkan_path ? places->vulkan_path : "libvulkan.so.1", &vulkan))
        return;
    struct vulkan_room *room = mem_new(sizeof *room);
    if (room)
        vulkan_fill(&vulkan, room, infos, count);
    mem_free(room);
    vulkan_close(&vulkan);
}
