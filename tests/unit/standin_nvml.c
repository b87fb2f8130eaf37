/* See standin_nvml.h. Built four times: whole, with LACKS_SYMBOLS (an old driver's), NEW (what is
 * deprecated has gone) and USELESS (no handles). */
#include "standin_nvml.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

enum { UNKNOWN = 999 };
struct memory {
    unsigned long long total, free, used;
};
struct utilization {
    unsigned gpu, memory;
};

EXPORT standin_set standin_nvml_set;
EXPORT standin_count standin_nvml_open;
EXPORT int nvmlInit(void), nvmlInit_v2(void), nvmlShutdown(void);
EXPORT const char *nvmlErrorString(int result);
EXPORT int nvmlDeviceGetHandleByPciBusId(const char *pci, void **out);
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **out);
EXPORT int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *out);
EXPORT int nvmlDeviceGetTemperatureV(void *device, unsigned *out);
EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct memory *out);
EXPORT int nvmlDeviceGetUtilizationRates(void *device, struct utilization *out);
EXPORT int nvmlDeviceGetTemperatureThreshold(void *device, unsigned which, unsigned *out);
EXPORT int nvmlDeviceGetPowerUsage(void *device, unsigned *out);
EXPORT int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *out);
EXPORT int nvmlDeviceGetClockInfo(void *device, unsigned which, unsigned *out);
EXPORT int nvmlSystemGetDriverVersion(char *text, unsigned size);
EXPORT int nvmlDeviceGetCount_v2(unsigned *out);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out);
EXPORT int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor);
EXPORT int nvmlDeviceGetMaxClockInfo(void *device, unsigned which, unsigned *out);
EXPORT int nvmlDeviceGetP2PStatus(void *device, void *other, unsigned what, unsigned *out);

static atomic_int mode = -1;
static atomic_uint n_open;
static char gpu;

static enum standin_mode mode_of_environment(void)
{
    static const char *const names[STANDIN_MODES] = {
        "normal", "no_driver", "no_permission", "mismatch", "errors",
        "lost",   "nonsense",  "slow",          "hang",     "hang_init"};
    const char *name = getenv("MEDLEY_STANDIN_NVML");
    for (int i = 0; name && i < STANDIN_MODES; i++) {
        if (strcmp(name, names[i]) == 0)
            return (enum standin_mode)i;
    }
    return STANDIN_NORMAL;
}

static enum standin_mode now(void)
{
    int set = atomic_load(&mode);
    return set < 0 ? mode_of_environment() : (enum standin_mode)set;
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

void standin_nvml_set(enum standin_mode wanted)
{
    atomic_store(&mode, (int)wanted);
}

unsigned standin_nvml_open(void)
{
    return atomic_load(&n_open);
}

int nvmlInit(void)
{
    while (now() == STANDIN_HANG_INIT)
        pause_ms(1);
    int result = now() == STANDIN_NO_DRIVER       ? 9
                 : now() == STANDIN_NO_PERMISSION ? 4
                 : now() == STANDIN_MISMATCH      ? 18
                                                  : 0;
    if (!result)
        atomic_fetch_add(&n_open, 1);
    return result;
}

int nvmlShutdown(void)
{
    atomic_fetch_sub(&n_open, 1);
    return 0;
}

/* What every reading answers in this mode, 0: go on. */
static int answer(const void *device)
{
    if (device != &gpu)
        abort();
    return now() == STANDIN_ERRORS ? UNKNOWN : now() == STANDIN_LOST ? 15 : 0;
}

#ifndef NEW
int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *out)
{
    while (now() == STANDIN_HANG)
        pause_ms(1);
    if (now() == STANDIN_SLOW)
        pause_ms(300);
    *out = sensor ? 0 : now() == STANDIN_NONSENSE ? 300 : 64;
    return answer(device);
}
#else
int nvmlDeviceGetTemperatureV(void *device, unsigned *out)
{
    if (out[0] != 0x0100000c || out[1] != 0) /* version 1 of 12 bytes */
        return 25;
    out[2] = 64;
    return answer(device);
}
#endif

#ifndef USELESS
static int find(const char *pci, void **out)
{
    if (strcmp(pci, "0000:01:00.0") != 0 || now() == STANDIN_LOST)
        return 6; /* not found */
    *out = &gpu;
    return 0;
}

int nvmlDeviceGetHandleByPciBusId(const char *pci, void **out)
{
    return find(pci, out);
}
#endif

#if !defined USELESS && !defined LACKS_SYMBOLS
int nvmlInit_v2(void)
{
    return nvmlInit();
}

const char *nvmlErrorString(int result)
{
    return result == UNKNOWN ? "Unknown\nError" : "some error";
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **out)
{
    return find(pci, out);
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *out)
{
    const unsigned long long gib = 1ull << 30;
    *out = (struct memory){
        .total = 24 * gib, .free = 16 * gib, .used = (now() == STANDIN_NONSENSE ? 80 : 8) * gib};
    return answer(device);
}

int nvmlDeviceGetUtilizationRates(void *device, struct utilization *out)
{
    *out = (struct utilization){.gpu = now() == STANDIN_NONSENSE ? 250 : 42, .memory = 10};
    return answer(device);
}

int nvmlDeviceGetTemperatureThreshold(void *device, unsigned which, unsigned *out)
{
    *out = now() == STANDIN_NONSENSE ? 4000000000u : which == 1 ? 95 : 98;
    return answer(device);
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *out)
{
    *out = now() == STANDIN_NONSENSE ? 4000000000u : 150000;
    return answer(device);
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *out)
{
    *out = now() == STANDIN_NONSENSE ? 4000000000u : 300000;
    return answer(device);
}

static char second; /* can only be reached from the first */

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    snprintf(text, size, "%s", now() == STANDIN_NONSENSE ? "\033[31m" : "570.86.16");
    return now() == STANDIN_ERRORS ? UNKNOWN : 0;
}

int nvmlDeviceGetCount_v2(unsigned *out)
{
    *out = now() == STANDIN_NONSENSE ? 4000000000u : 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out)
{
    *out = index ? &second : &gpu;
    return index < 2 ? 0 : 2;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
    *major = now() == STANDIN_NONSENSE ? -3 : 8;
    *minor = 9;
    return answer(device);
}

int nvmlDeviceGetMaxClockInfo(void *device, unsigned which, unsigned *out)
{
    *out = now() == STANDIN_NONSENSE ? 4000000000u : which == 1 ? 2520 : 1;
    return answer(device);
}

int nvmlDeviceGetP2PStatus(void *device, void *other, unsigned what, unsigned *out)
{
    if (other != &second || what > 1)
        abort();
    *out = now() == STANDIN_NONSENSE ? 77 : 0;
    return answer(device);
}

int nvmlDeviceGetClockInfo(void *device, unsigned which, unsigned *out)
{
    *out = now() == STANDIN_NONSENSE ? 4000000000u : which == 1 ? 1500 : 1;
    return answer(device);
}
#endif
