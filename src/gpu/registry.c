#include "gpu/registry.h"

#include "base/fnv.h"
#include "base/limits.h"
#include "base/mem.h"
#include "gpu/host.h"

#include <ggml.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

/* ---- keys ------------------------------------------------------------------------------ */

/* A fingerprint of the files (names, sizes, times) that a package of Vulkan drivers replaces when
 * it is upgraded, and of the variables that choose others: a driver that is built anew may keep its
 * version. */
static uint64_t vulkan_drivers_stamp(void)
{
    static const char *const patterns[] = {"/usr/share/vulkan/icd.d/*.json",
                                           "/etc/vulkan/icd.d/*.json",
                                           "/usr/local/share/vulkan/icd.d/*.json"};
    uint64_t hash = FNV_BASIS;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        glob_t found;
        if (glob(patterns[i], 0, NULL, &found) != 0)
            continue;
        for (size_t k = 0; k < found.gl_pathc; k++) {
            struct stat file;
            char text[512];
            if (stat(found.gl_pathv[k], &file) != 0)
                continue;
            snprintf(text, sizeof text, "%s %lld %lld", found.gl_pathv[k], (long long)file.st_size,
                     (long long)file.st_mtime);
            hash = fnv_text(hash, text);
        }
        globfree(&found);
    }
    static const char *const overrides[] = {"VK_DRIVER_FILES", "VK_ICD_FILENAMES",
                                            "VK_ADD_DRIVER_FILES", "GGML_VK_VISIBLE_DEVICES"};
    for (size_t i = 0; i < sizeof overrides / sizeof *overrides; i++) {
        const char *value = getenv(overrides[i]);
        hash = value ? fnv_text(hash, value) : hash;
    }
    return hash;
}

static void describe_driver(char *text, size_t size, const struct device_info *info)
{
    struct utsname system;
    const char *release = uname(&system) == 0 ? system.release : "?";
    if (strcmp(info->backend, "vulkan") == 0)
        snprintf(text, size, "%.31s%skernel %.24s, icd %016" PRIx64, info->driver,
                 info->driver[0] ? ", " : "", release, vulkan_drivers_stamp());
    else if (info->driver[0])
        snprintf(text, size, "%s", info->driver);
    else if (strcmp(info->backend, "cpu") != 0)
        snprintf(text, size, "kernel %.60s", release);
    else if (host_clock_limit_khz()) /* it has no driver, but other figures with other clocks */
        snprintf(text, size, "at most %" PRIu32 " MHz", host_clock_limit_khz() / 1000);
}

struct registry_key registry_key_of(const struct device_info *info, uint32_t index,
                                    uint32_t n_cpu_threads)
{
    struct registry_key key = {0};
    snprintf(key.backend, sizeof key.backend, "%s", info->backend);
    if (strcmp(info->backend, "cpu") == 0)
        snprintf(key.device, sizeof key.device, "%.64s; %.64s; %u threads", info->name,
                 info->architecture,
                 n_cpu_threads ? n_cpu_threads : (uint32_t)info->compute_units.value);
    else if (!info->name[0])
        snprintf(key.device, sizeof key.device, "list of devices");
    else if (info->pci[0])
        snprintf(key.device, sizeof key.device, "%s", info->pci);
    else
        snprintf(key.device, sizeof key.device, "%.127s #%u", info->name, index);
    describe_driver(key.driver, sizeof key.driver, info);
    snprintf(key.ggml, sizeof key.ggml, "%.24s %.24s, calibration %d", ggml_version(),
             ggml_commit(), REGISTRY_CALIBRATION_VERSION);
    return key;
}

static bool same_key(const struct registry_key *a, const struct registry_key *b)
{
    return strcmp(a->backend, b->backend) == 0 && strcmp(a->device, b->device) == 0 &&
           strcmp(a->driver, b->driver) == 0 && strcmp(a->ggml, b->ggml) == 0;
}

/* ---- the table ------------------------------------------------------------------------- */

void registry_deinit(struct registry *registry)
{
    mem_free(registry->entries);
    *registry = (struct registry){0};
}

static struct registry_entry *registry_find_entry(const struct registry *registry,
                                                  const struct registry_key *key)
{
    for (uint32_t i = 0; i < registry->count; i++) {
        if (same_key(&registry->entries[i].key, key))
            return &registry->entries[i];
    }
    return NULL;
}

const struct registry_entry *registry_find(const struct registry *registry,
                                           const struct registry_key *key)
{
    return registry_find_entry(registry, key);
}

bool registry_is_fresh(const struct registry_entry *entry, uint64_t now_unix_s)
{
    return entry->verified_unix_s <= now_unix_s &&
           now_unix_s - entry->verified_unix_s <= LIMIT_REGISTRY_AGE_S;
}

static uint64_t last_use(const struct registry_entry *entry)
{
    uint64_t calibrated = entry->calibrated ? entry->calibration.unix_s : 0;
    return entry->verified_unix_s > calibrated ? entry->verified_unix_s : calibrated;
}

/* A place for one more entry: a new one, or that of the oldest. */
static struct registry_entry *make_room(struct registry *registry)
{
    if (registry->count == LIMIT_REGISTRY_ENTRIES) {
        struct registry_entry *oldest = registry->entries;
        for (uint32_t i = 1; i < registry->count; i++) {
            if (last_use(&registry->entries[i]) < last_use(oldest))
                oldest = &registry->entries[i];
        }
        return oldest;
    }
    struct registry_entry *entries =
        mem_resize(registry->entries, registry->count + 1, sizeof *registry->entries);
    if (!entries)
        return NULL;
    registry->entries = entries;
    return &entries[registry->count++];
}

enum error_code registry_merge(struct registry *registry, const struct registry_entry *change,
                               struct error *err)
{
    struct registry_entry *entry = registry_find_entry(registry, &change->key);
    if (!entry) {
        entry = make_room(registry);
        if (!entry)
            return error_set(err, ERROR_NO_MEMORY, "out of memory");
        *entry = (struct registry_entry){.key = change->key};
    }
    if (change->result != REGISTRY_UNKNOWN) {
        entry->result = change->result;
        memcpy(entry->reason, change->reason, sizeof entry->reason);
        entry->verified_unix_s = change->verified_unix_s;
    }
    if (change->calibrated) {
        entry->calibrated = true;
        entry->calibration = change->calibration;
    }
    return ERROR_NONE;
}
