#include "gpu/driver_faults.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { VERSION_PARTS = 4 };
struct driver_version {
    uint32_t part[VERSION_PARTS];
};

/* `backend` NULL: whoever uses the driver. A version is affected from `since` on, before `mended`;
 * with no part in `mended` every version is. */
static const struct driver_fault {
    const char *driver, *backend;
    struct driver_version since, mended;
    const char *what, *mend;
} driver_faults[] = {
    /* Seen on Navi 21 and Polaris with 25.0.7, gone with 26.0.5: llama.cpp issue 22128, Mesa issue
     * 15302. Versions between were not tried there. */
    {"radv",
     NULL,
     {{25, 0, 7}},
     {{26, 0, 5}},
     "may corrupt memory while it compiles shaders of models with pictures",
     "Mesa 26.0.5 mends it"},
    /* AMD ended it for Mesa's RADV: AMDVLK issue 405; AMD's release notes of 25.10.1. */
    {"AMD open-source driver",
     NULL,
     {{0}},
     {{0}},
     "is no longer maintained (AMDVLK)",
     "install Mesa's RADV in its place (package mesa-vulkan-drivers)"},
    {"AMD proprietary driver",
     NULL,
     {{0}},
     {{0}},
     "is no longer maintained on Linux",
     "install Mesa's RADV in its place (package mesa-vulkan-drivers)"},
    /* CUDA Compatibility, "Minor Version Compatibility", table 1: CUDA 12.x needs 525. */
    {"NVIDIA",
     "cuda",
     {{0}},
     {{525}},
     "is too old for CUDA 12",
     "version 525.60.13 or later mends it"},
};

/* The first numbers with points between them: "Mesa 25.0.7-2 (LLVM 19.1.7)" is 25.0.7. */
static bool driver_version_read(const char *text, struct driver_version *out)
{
    *out = (struct driver_version){0};
    while (*text && !isdigit((unsigned char)*text))
        text++;
    if (!*text)
        return false;
    for (unsigned i = 0; i < VERSION_PARTS && isdigit((unsigned char)*text); i++) {
        char *end;
        unsigned long number = strtoul(text, &end, 10);
        out->part[i] = number < UINT32_MAX ? (uint32_t)number : UINT32_MAX;
        text = *end == '.' ? end + 1 : end;
        if (*end != '.')
            break;
    }
    return true;
}

static int driver_version_compare(const struct driver_version *a, const struct driver_version *b)
{
    for (unsigned i = 0; i < VERSION_PARTS; i++) {
        if (a->part[i] != b->part[i])
            return a->part[i] < b->part[i] ? -1 : 1;
    }
    return 0;
}

static bool driver_fault_fits(const struct driver_fault *fault, const struct device_info *info)
{
    static const struct driver_version none;
    struct driver_version version;
    if (strcasecmp(info->driver_name, fault->driver) != 0 ||
        (fault->backend && strcmp(info->backend, fault->backend) != 0))
        return false;
    if (driver_version_compare(&fault->mended, &none) == 0)
        return true;
    return driver_version_read(info->driver, &version) &&
           driver_version_compare(&version, &fault->since) >= 0 &&
           driver_version_compare(&version, &fault->mended) < 0;
}

void driver_fault_find(const struct device_info *info, char *text, size_t size)
{
    text[0] = 0;
    for (size_t i = 0; i < sizeof driver_faults / sizeof *driver_faults; i++) {
        const struct driver_fault *fault = &driver_faults[i];
        if (!driver_fault_fits(fault, info))
            continue;
        snprintf(text, size, "%.32s%s%.32s %s; %s", info->driver_name, info->driver[0] ? " " : "",
                 info->driver, fault->what, fault->mend);
        return;
    }
}
