/* A library in the place of libze_loader.so.1: one GPU at 0000:03:00.0. Structures are written at
 * the offsets that zes_api.h v1.32 gives them on 64-bit machines, so that level_zero.c's
 * declarations are checked against the header's numbers. MEDLEY_STANDIN_LEVEL_ZERO: normal, no_gpu,
 * no_permission,
 * errors, nonsense, bad_count. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define LIST(name) EXPORT int name(void *parent, uint32_t *count, void **out)
#define PART(name) EXPORT int name(void *part, void *out)

EXPORT int zesInit(uint32_t flags);
EXPORT int zesDriverGet(uint32_t *count, void **out);
LIST(zesDeviceGet);
LIST(zesDeviceEnumTemperatureSensors);
LIST(zesDeviceEnumPowerDomains);
LIST(zesDeviceEnumFrequencyDomains);
LIST(zesDeviceEnumMemoryModules);
LIST(zesDeviceEnumEngineGroups);
PART(zesDevicePciGetProperties);
PART(zesTemperatureGetProperties);
PART(zesTemperatureGetState);
PART(zesPowerGetEnergyCounter);
PART(zesFrequencyGetProperties);
PART(zesFrequencyGetState);
PART(zesMemoryGetState);
PART(zesEngineGetProperties);
PART(zesEngineGetActivity);
EXPORT int zesPowerGetLimits(void *part, void *sustained, void *burst, void *peak);

static char driver, device, parts[4]; /* of a list, part i is &parts[i] */
static uint64_t calls; /* counters move with each read: 1 s and 40 J, of that 0.25 s busy */

static int mode_is(const char *name)
{
    const char *mode = getenv("MEDLEY_STANDIN_LEVEL_ZERO");
    return mode && strcmp(mode, name) == 0;
}

static int answer(void)
{
    return mode_is("errors") ? 0x78000003 : 0;
}

static void put(void *out, size_t offset, const void *value, size_t size)
{
    memcpy((char *)out + offset, value, size);
}

static void put_u32(void *out, size_t offset, uint32_t value)
{
    put(out, offset, &value, sizeof value);
}

static void put_u64(void *out, size_t offset, uint64_t value)
{
    put(out, offset, &value, sizeof value);
}

static void put_double(void *out, size_t offset, double value)
{
    put(out, offset, &value, sizeof value);
}

static void must_be(const void *out, uint32_t type)
{
    uint32_t said;
    void *next;
    memcpy(&said, out, sizeof said);
    memcpy(&next, (const char *)out + 8, sizeof next);
    if (said != type || next)
        abort();
}

static int list(uint32_t n, char *first, uint32_t *count, void **out)
{
    if (!*count) {
        *count = n;
        return 0;
    }
    *count = n < *count ? n : *count;
    for (uint32_t i = 0; out && i < *count; i++)
        out[i] = first + i;
    if (mode_is("bad_count"))
        *count = 4000000000u;
    return 0;
}

int zesInit(uint32_t flags)
{
    return mode_is("no_permission") ? 0x70010000 : flags ? 0x78000004 : 0;
}

int zesDriverGet(uint32_t *count, void **out)
{
    return mode_is("no_gpu") ? 0x78000001 : list(1, &driver, count, out);
}

int zesDeviceGet(void *parent, uint32_t *count, void **out)
{
    int result = parent == &driver ? 0 : 1;
    if (*count)
        *count = 1;
    if (*count && out)
        out[0] = &device;
    *count = 1;
    return result;
}

int zesDeviceEnumTemperatureSensors(void *parent, uint32_t *count, void **out)
{
    return list(3, parts, count, out);
}

int zesDeviceEnumPowerDomains(void *parent, uint32_t *count, void **out)
{
    return list(1, parts, count, out);
}

int zesDeviceEnumFrequencyDomains(void *parent, uint32_t *count, void **out)
{
    return list(2, parts, count, out);
}

int zesDeviceEnumMemoryModules(void *parent, uint32_t *count, void **out)
{
    return list(2, parts, count, out);
}

int zesDeviceEnumEngineGroups(void *parent, uint32_t *count, void **out)
{
    return list(4, parts, count, out);
}

int zesDevicePciGetProperties(void *part, void *out)
{
    must_be(out, 0x2);
    put_u32(out, 16, 0);
    put_u32(out, 20, 3);
    put_u32(out, 24, 0);
    put_u32(out, 28, 0);
    return 0;
}

/* Memory, GPU, global. */
int zesTemperatureGetProperties(void *part, void *out)
{
    static const uint32_t types[] = {2, 1, 0};
    must_be(out, 0x14);
    put_u32(out, 16, types[(char *)part - parts]);
    put_double(out, 32, 105);
    return answer();
}

int zesTemperatureGetState(void *part, void *out)
{
    static const double celsius[] = {88, 57.5, 90};
    put_double(out, 0, mode_is("nonsense") ? 1e300 : celsius[(char *)part - parts]);
    return answer();
}

int zesPowerGetEnergyCounter(void *part, void *out)
{
    calls++;
    put_u64(out, 0, mode_is("nonsense") ? UINT64_MAX / calls : 1000000000 + calls * 40000000);
    put_u64(out, 8, 77000000 + calls * 1000000);
    return answer();
}

int zesPowerGetLimits(void *part, void *sustained, void *burst, void *peak)
{
    if (burst || peak)
        abort();
    put(sustained, 0, &(uint8_t){1}, 1);
    put_u32(sustained, 4, mode_is("nonsense") ? (uint32_t)-5 : 190000);
    return answer();
}

/* Memory, GPU. */
int zesFrequencyGetProperties(void *part, void *out)
{
    must_be(out, 0x9);
    put_u32(out, 16, part == parts ? 1 : 0);
    return answer();
}

int zesFrequencyGetState(void *part, void *out)
{
    must_be(out, 0x1b);
    put_double(out, 48, mode_is("nonsense") ? -1 : part == parts ? 8000 : 2350);
    return answer();
}

int zesMemoryGetState(void *part, void *out)
{
    must_be(out, 0x1e);
    put_u64(out, 24, (mode_is("nonsense") ? 9ull : 5ull) << 30);
    put_u64(out, 32, 8ull << 30);
    return answer();
}

/* Media, all, render and compute (of a part), render and compute. */
int zesEngineGetProperties(void *part, void *out)
{
    static const uint32_t groups[] = {2, 0, 11, 11};
    must_be(out, 0x5);
    put_u32(out, 16, groups[(char *)part - parts]);
    put(out, 20, &(uint8_t){(char *)part == parts + 2}, 1);
    return answer();
}

int zesEngineGetActivity(void *part, void *out)
{
    if (!mode_is("nonsense") && !mode_is("errors") && part != parts + 3)
        abort();
    put_u64(out, 0, mode_is("nonsense") ? UINT64_MAX - calls : calls * 250000);
    put_u64(out, 8, calls * 1000000);
    return answer();
}
