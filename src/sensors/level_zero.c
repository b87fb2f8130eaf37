/* Intel GPUs, through Level Zero's Sysman, whose loader is opened at run time.
 *
 * Source: the oneAPI Level Zero specification, Sysman (oneapi-src.github.io/level-zero-spec,
 * zes_api.h of v1.32): the part of its binary interface that is used, declared here so that no
 * header is needed. Structures begin with their type (zes_structure_type_t) and a chain that stays
 * NULL. The loader is never closed once it has been started: drivers behind it keep threads. */
#include "base/mem.h"
#include "sensors/library.h"
#include "sensors/pci.h"
#include "sensors/rate.h"
#include "sensors/sensor_impl.h"

#include "base/clock.h"

#include <math.h>
#include <string.h>

enum { ZE_UNINITIALIZED = 0x78000001, ZE_INSUFFICIENT_PERMISSIONS = 0x70010000 }; /* ze_result_t */
enum { /* zes_structure_type_t */
       ZES_PCI_PROPERTIES = 0x2,
       ZES_ENGINE_PROPERTIES = 0x5,
       ZES_FREQ_PROPERTIES = 0x9,
       ZES_TEMP_PROPERTIES = 0x14,
       ZES_FREQ_STATE = 0x1b,
       ZES_MEM_STATE = 0x1e
};
enum { ZES_TEMP_GLOBAL = 0, ZES_TEMP_GPU = 1 }; /* zes_temp_sensors_t */
enum { ZES_FREQ_GPU = 0 };                      /* zes_freq_domain_t */
enum {
    ZES_ENGINE_ALL = 0,
    ZES_ENGINE_COMPUTE_ALL = 1,
    ZES_ENGINE_RENDER_COMPUTE_ALL = 11
}; /* zes_engine_group_t */

typedef void *zes_handle;

struct zes_pci_properties {
    uint32_t type;
    void *next;
    struct pci_address address; /* the same four fields as zes_pci_address_t */
    int32_t speed_generation, speed_width;
    int64_t speed_bandwidth;
    uint8_t flags[3];
};
struct zes_temp_properties {
    uint32_t type;
    void *next;
    uint32_t sensor;
    uint8_t on_subdevice;
    uint32_t subdevice;
    double max_celsius;
    uint8_t flags[3];
};
struct zes_freq_properties {
    uint32_t type;
    void *next;
    uint32_t domain;
    uint8_t on_subdevice;
    uint32_t subdevice;
    uint8_t flags[2];
    double min_mhz, max_mhz;
};
struct zes_freq_state {
    uint32_t type;
    const void *next;
    double volt, request_mhz, tdp_mhz, efficient_mhz, actual_mhz; /* below 0: not known */
    uint32_t throttle_reasons;
};
struct zes_mem_state {
    uint32_t type;
    const void *next;
    uint32_t health;
    uint64_t free_bytes, size_bytes;
};
struct zes_engine_properties {
    uint32_t type;
    void *next;
    uint32_t group;
    uint8_t on_subdevice;
    uint32_t subdevice;
};
struct zes_counter { /* zes_power_energy_counter_t in µJ; zes_engine_stats_t in µs of work */
    uint64_t value, timestamp_us;
};
struct zes_sustained_limit {
    uint8_t enabled;
    int32_t power_mw, interval_ms;
};
_Static_assert(sizeof(struct pci_address) == 16, "zes_pci_address_t");
_Static_assert(sizeof(struct zes_pci_properties) == 56 && sizeof(struct zes_temp_properties) == 48,
               "the binary interface");

/* One device that a driver has, with the parts that are read. NULL: it has no such part. */
struct level_zero_card {
    struct pci_address address;
    zes_handle device, temperature, power, clock, engine;
    zes_handle memories[8];
    uint32_t n_memories;
    struct reading slowdown_mc;
    struct energy_meter energy;
    struct load_meter load;
};

enum { PARTS_MAX = 16 };
typedef int (*enumerate)(zes_handle parent, uint32_t *count, zes_handle *out);

struct level_zero {
    void *library;
    int (*init)(uint32_t flags);
    int (*drivers)(uint32_t *count, zes_handle *out);
    enumerate devices, temperatures, powers, clocks, memories, engines;
    int (*pci_properties)(zes_handle device, struct zes_pci_properties *out);
    int (*temp_properties)(zes_handle part, struct zes_temp_properties *out);
    int (*temp_state)(zes_handle part, double *out_celsius);
    int (*power_energy)(zes_handle part, struct zes_counter *out);
    int (*power_limits)(zes_handle part, struct zes_sustained_limit *sustained, void *burst,
                        void *peak);
    int (*freq_properties)(zes_handle part, struct zes_freq_properties *out);
    int (*freq_state)(zes_handle part, struct zes_freq_state *out);
    int (*mem_state)(zes_handle part, struct zes_mem_state *out);
    int (*engine_properties)(zes_handle part, struct zes_engine_properties *out);
    int (*engine_activity)(zes_handle part, struct zes_counter *out);
    struct level_zero_card cards[PARTS_MAX];
    uint32_t n_cards;
};

static void level_zero_bind(struct level_zero *zes)
{
    const struct library_symbol symbols[] = {
        {&zes->init, "zesInit", NULL},
        {&zes->drivers, "zesDriverGet", NULL},
        {&zes->devices, "zesDeviceGet", NULL},
        {&zes->pci_properties, "zesDevicePciGetProperties", NULL},
        {&zes->temperatures, "zesDeviceEnumTemperatureSensors", NULL},
        {&zes->powers, "zesDeviceEnumPowerDomains", NULL},
        {&zes->clocks, "zesDeviceEnumFrequencyDomains", NULL},
        {&zes->memories, "zesDeviceEnumMemoryModules", NULL},
        {&zes->engines, "zesDeviceEnumEngineGroups", NULL},
        {&zes->temp_properties, "zesTemperatureGetProperties", NULL},
        {&zes->temp_state, "zesTemperatureGetState", NULL},
        {&zes->power_energy, "zesPowerGetEnergyCounter", NULL},
        {&zes->power_limits, "zesPowerGetLimits", NULL},
        {&zes->freq_properties, "zesFrequencyGetProperties", NULL},
        {&zes->freq_state, "zesFrequencyGetState", NULL},
        {&zes->mem_state, "zesMemoryGetState", NULL},
        {&zes->engine_properties, "zesEngineGetProperties", NULL},
        {&zes->engine_activity, "zesEngineGetActivity", NULL},
    };
    library_bind(zes->library, symbols, sizeof symbols / sizeof *symbols);
}

/* ---- opening ----------------------------------------------------------------------------- */

/* The parts of one kind that a device has; at most `max`. */
static uint32_t level_zero_list_parts(enumerate list, zes_handle device, zes_handle *out,
                                      uint32_t max)
{
    uint32_t count = 0;
    if (!list || list(device, &count, NULL) || !count)
        return 0;
    if (count > max)
        count = max; /* a smaller count than there are is allowed: that many are given */
    uint32_t given = count;
    memset(out, 0, max * sizeof *out);
    return list(device, &given, out) || given > count ? 0 : given;
}

static void find_temperature(struct level_zero *zes, struct level_zero_card *card)
{
    zes_handle parts[PARTS_MAX];
    uint32_t n = zes->temp_properties
                     ? level_zero_list_parts(zes->temperatures, card->device, parts, PARTS_MAX)
                     : 0;
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < n; i++) {
        struct zes_temp_properties properties = {.type = ZES_TEMP_PROPERTIES};
        if (zes->temp_properties(parts[i], &properties) || properties.on_subdevice ||
            (properties.sensor != ZES_TEMP_GPU &&
             (properties.sensor != ZES_TEMP_GLOBAL || best == ZES_TEMP_GPU)))
            continue;
        best = properties.sensor;
        card->temperature = parts[i];
        card->slowdown_mc = reading_now(UNIT_MC, trunc(properties.max_celsius * 1000));
    }
}

static void find_clock(struct level_zero *zes, struct level_zero_card *card)
{
    zes_handle parts[PARTS_MAX];
    uint32_t n = zes->freq_properties
                     ? level_zero_list_parts(zes->clocks, card->device, parts, PARTS_MAX)
                     : 0;
    for (uint32_t i = 0; i < n && !card->clock; i++) {
        struct zes_freq_properties properties = {.type = ZES_FREQ_PROPERTIES};
        if (!zes->freq_properties(parts[i], &properties) && properties.domain == ZES_FREQ_GPU)
            card->clock = parts[i];
    }
}

static int engine_rank(uint32_t group)
{
    switch (group) {
    case ZES_ENGINE_RENDER_COMPUTE_ALL:
        return 3;
    case ZES_ENGINE_ALL:
        return 2;
    case ZES_ENGINE_COMPUTE_ALL:
        return 1;
    default:
        return 0;
    }
}

static void find_engine(struct level_zero *zes, struct level_zero_card *card)
{
    zes_handle parts[PARTS_MAX];
    uint32_t n = zes->engine_properties
                     ? level_zero_list_parts(zes->engines, card->device, parts, PARTS_MAX)
                     : 0;
    int best = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct zes_engine_properties properties = {.type = ZES_ENGINE_PROPERTIES};
        if (zes->engine_properties(parts[i], &properties) || properties.on_subdevice ||
            engine_rank(properties.group) <= best)
            continue;
        best = engine_rank(properties.group);
        card->engine = parts[i];
    }
}

static void add_card(struct level_zero *zes, zes_handle device)
{
    struct zes_pci_properties pci = {.type = ZES_PCI_PROPERTIES};
    if (zes->n_cards == PARTS_MAX || zes->pci_properties(device, &pci))
        return;
    struct level_zero_card *card = &zes->cards[zes->n_cards++];
    card->device = device;
    card->address = pci.address;
    find_temperature(zes, card);
    find_clock(zes, card);
    find_engine(zes, card);
    zes_handle parts[PARTS_MAX];
    if (level_zero_list_parts(zes->powers, device, parts, PARTS_MAX))
        card->power = parts[0]; /* the first is the whole card or package */
    card->n_memories = level_zero_list_parts(zes->memories, device, card->memories, 8);
}

static int find_cards(struct level_zero *zes)
{
    zes_handle drivers[PARTS_MAX] = {0}, devices[PARTS_MAX];
    uint32_t n_drivers = PARTS_MAX;
    int result = zes->drivers(&n_drivers, drivers);
    for (uint32_t i = 0; !result && i < n_drivers && i < PARTS_MAX; i++) {
        uint32_t n_devices = level_zero_list_parts(zes->devices, drivers[i], devices, PARTS_MAX);
        for (uint32_t k = 0; k < n_devices; k++)
            add_card(zes, devices[k]);
    }
    return result;
}

static enum error_code level_zero_start(struct level_zero *zes, const char *path, struct error *err)
{
    if (!zes->init || !zes->drivers || !zes->devices || !zes->pci_properties)
        return error_set(err, ERROR_UNSUPPORTED,
                         "%s is older than Level Zero 1.5: `sudo apt install libze1`", path);
    int result = zes->init(0);
    if (!result)
        result = find_cards(zes);
    if (result == ZE_INSUFFICIENT_PERMISSIONS)
        return error_set(
            err, ERROR_IO,
            "no permission on /dev/dri/renderD*: `sudo usermod -aG render $USER` and a new login");
    if (result == ZE_UNINITIALIZED || (!result && !zes->n_cards))
        return error_set(err, ERROR_NOT_FOUND,
                         "Level Zero finds no Intel GPU; if there is one, install Intel's "
                         "libze-intel-gpu1 (docs/gpu-guide.md)");
    if (result)
        return error_set(err, ERROR_DEVICE,
                         "cannot start Level Zero (error 0x%x): see `sudo dmesg`",
                         (unsigned)result);
    return ERROR_NONE;
}

static enum error_code level_zero_open(const struct sensor_context *context, void **self,
                                       struct error *err)
{
    const char *path = context->level_zero_path ? context->level_zero_path : "libze_loader.so.1";
    char reason[256], name[PCI_NAME_BYTES];
    struct level_zero *zes = mem_new(sizeof *zes);
    if (!zes)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    enum error_code code;
    zes->library = library_open(path, reason, sizeof reason);
    if (zes->library) {
        level_zero_bind(zes);
        code = level_zero_start(zes, path, err);
    } else if (context->level_zero_path) {
        code = error_set(err, ERROR_NOT_FOUND, "cannot open %s: %.200s", path, reason);
    } else if (pci_count_displays(&context->fs, PCI_VENDOR_INTEL, name)) {
        code = error_set(err, ERROR_NOT_FOUND,
                         "the Intel GPU %s is there, but not %s: `sudo apt install libze1`, and "
                         "Intel's libze-intel-gpu1 "
                         "(docs/gpu-guide.md)",
                         name, path);
    } else {
        code = error_set(err, ERROR_NOT_FOUND, "no Intel GPU on the PCI bus, and no %s", path);
    }
    if (code)
        mem_free(zes);
    else
        *self = zes;
    return code;
}

/* ---- reading ----------------------------------------------------------------------------- */

static void level_zero_read_memory(const struct level_zero *zes, const struct level_zero_card *card,
                                   struct sensor_device *out)
{
    static const uint64_t max_bytes = (uint64_t)1 << 50;
    uint64_t free_bytes = 0, size_bytes = 0;
    bool known = card->n_memories && zes->mem_state;
    for (uint32_t i = 0; known && i < card->n_memories; i++) {
        struct zes_mem_state state = {.type = ZES_MEM_STATE};
        known = !zes->mem_state(card->memories[i], &state) && state.size_bytes &&
                state.size_bytes <= max_bytes && state.free_bytes <= state.size_bytes;
        free_bytes += state.free_bytes;
        size_bytes += state.size_bytes;
    }
    out->memory_free_bytes = known ? reading_now_u64(UNIT_BYTES, free_bytes) : reading_failed();
    out->memory_used_bytes =
        known ? reading_now_u64(UNIT_BYTES, size_bytes - free_bytes) : reading_failed();
}

static void read_power(struct level_zero *zes, struct level_zero_card *card,
                       struct sensor_device *out)
{
    struct zes_counter counter = {0};
    out->power_mw = reading_failed();
    if (card->power && zes->power_energy && !zes->power_energy(card->power, &counter) &&
        counter.timestamp_us < UINT64_MAX / 1000)
        out->power_mw =
            energy_meter_update(&card->energy, counter.value, 0, counter.timestamp_us * 1000);
    struct zes_sustained_limit limit = {0};
    if (card->power && zes->power_limits && !zes->power_limits(card->power, &limit, NULL, NULL) &&
        limit.enabled && limit.power_mw > 0)
        out->power_limit_mw = reading_now(UNIT_MW, limit.power_mw);
}

static void read_card(struct level_zero *zes, struct level_zero_card *card,
                      struct sensor_device *out)
{
    double celsius = 0;
    out->temperature_mc = reading_failed();
    if (card->temperature && zes->temp_state && !zes->temp_state(card->temperature, &celsius))
        out->temperature_mc = reading_now(UNIT_MC, trunc(celsius * 1000));
    if (card->slowdown_mc.valid)
        out->temperature_slowdown_mc = reading_now(UNIT_MC, card->slowdown_mc.value);
    struct zes_freq_state clock = {.type = ZES_FREQ_STATE, .actual_mhz = -1};
    out->clock_mhz = reading_failed();
    if (card->clock && zes->freq_state && !zes->freq_state(card->clock, &clock))
        out->clock_mhz = reading_now(UNIT_MHZ, trunc(clock.actual_mhz));
    struct zes_counter active = {0};
    out->utilisation_pct = reading_failed();
    if (card->engine && zes->engine_activity && !zes->engine_activity(card->engine, &active))
        out->utilisation_pct =
            load_meter_update(&card->load, active.value, active.timestamp_us, clock_now_ns());
    read_power(zes, card, out);
    level_zero_read_memory(zes, card, out);
}

static void level_zero_read_device(void *self, uint32_t index, const struct device_info *info,
                                   struct sensor_device *out)
{
    (void)index;
    struct level_zero *zes = self;
    struct pci_address address;
    if (!pci_parse(info->pci, &address))
        return;
    for (uint32_t i = 0; i < zes->n_cards; i++) {
        if (memcmp(&zes->cards[i].address, &address, sizeof address) == 0) {
            read_card(zes, &zes->cards[i], out);
            return;
        }
    }
}

const struct sensor_impl sensor_impl_level_zero = {.name = "level_zero",
                                                   .may_block = true,
                                                   .open = level_zero_open,
                                                   .close = mem_free,
                                                   .read_device = level_zero_read_device};
