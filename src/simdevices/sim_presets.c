#include "simdevices/sim_presets.h"

#include <stdio.h>
#include <string.h>

/* memory to board: from memory of published specifications, not checked against the vendors' pages,
 * except where a remark says otherwise; near enough to try things out, no figures to cite. copy to
 * limit: chosen for the simulation, in the range that such devices are known for; no vendor
 * publishes thermal mass or resistance. The resistance follows from `load`: the temperature at
 * which full board power settles in air of 25 C. */
struct preset {
    const char *name, *title;
    double memory_gib;   /* as published */
    double bandwidth_gb; /* as published: GB/s */
    double tflops;       /* as published: f32, not tensor cores; else units x 2 x clock */
    double clock_mhz;    /* as published: boost */
    double board_w;      /* as published: board power */
    double
        copy_gb; /* chosen: 0.8 of the link for a card; memory / 2 where host and device share it */
    double idle_w;       /* chosen */
    double mass_j_per_k; /* chosen */
    double load_c;       /* chosen */
    double limit_c;      /* chosen, near what vendors state where they do */
};

/* Not published, but reckoned: f32 of the A770 (4096 lanes x 2 x MHz), the Jetson (1024 x 2 x MHz)
 * and the Pi (4 cores x 16 x MHz); GB/s of the Pi (4267 MT/s x 4 B). Estimates: f32, MHz and W of
 * the M2 Pro; W of the Pi. */
static const struct preset presets[] = {
    /* name               title                          GiB  GB/s   TFLOP/s MHz   W    copy  idle
     *                    mass load limit */
    {"rtx-3060", "NVIDIA GeForce RTX 3060", 12, 360, 12.7, 1777, 170, 25, 13, 350, 72, 93},
    {"rtx-3090", "NVIDIA GeForce RTX 3090", 24, 936, 35.6, 1695, 350, 25, 25, 700, 78, 93},
    {"rtx-4060", "NVIDIA GeForce RTX 4060", 8, 272, 15.1, 2460, 115, 12, 10, 300, 70, 90},
    {"rtx-4090", "NVIDIA GeForce RTX 4090", 24, 1008, 82.6, 2520, 450, 25, 20, 1100, 70, 90},
    {"rx-7900-xtx", "AMD Radeon RX 7900 XTX", 24, 960, 61.4, 2500, 355, 25, 20, 900, 72, 110},
    {"a770", "Intel Arc A770", 16, 560, 17.2, 2100, 225, 25, 40, 500, 75, 100},
    {"m2-pro", "Apple M2 Pro (19 GPU cores)", 16, 200, 6.8, 1398, 40, 100, 4, 250, 80, 100},
    {"jetson-orin-nano", "NVIDIA Jetson Orin Nano 8GB", 8, 68, 1.28, 625, 15, 34, 4, 120, 65, 95},
    {"raspberry-pi-5", "Raspberry Pi 5 8GB", 8, 17, 0.154, 2400, 12, 8, 3, 40, 90, 85},
};
enum { PRESETS = sizeof presets / sizeof *presets };

bool sim_preset_fill(const char *name, struct sim_spec *spec)
{
    for (int i = 0; i < PRESETS; i++) {
        const struct preset *p = &presets[i];
        if (strcmp(p->name, name) != 0)
            continue;
        snprintf(spec->title, sizeof spec->title, "%s (simulated)", p->title);
        spec->memory_bytes = p->memory_gib * 1024 * 1024 * 1024;
        spec->decode_bytes_per_s = p->bandwidth_gb * 1e9 * SIM_DECODE_SHARE;
        spec->flops_per_s = p->tflops * 1e12 * SIM_FLOPS_SHARE;
        spec->copy_bytes_per_s = p->copy_gb * 1e9;
        spec->launch_s = 20e-6;
        spec->clock_mhz = p->clock_mhz;
        spec->has_heat = true;
        spec->heat = (struct plant_params){
            .power_idle_w = p->idle_w,
            .power_max_w = p->board_w,
            .thermal_mass_j_per_k = p->mass_j_per_k,
            .resistance_k_per_w = (p->load_c - 25) / p->board_w,
            .ambient_c = 25,
            .limit_c = p->limit_c,
            .hysteresis_k = 5,
            .throttled_clock = 0.6,
        };
        return true;
    }
    return false;
}

bool sim_preset_published(const char *device_name, struct sim_published *out)
{
    for (int i = 0; i < PRESETS; i++) {
        const struct preset *p = &presets[i];
        const size_t length = strlen(p->title);
        if (strncmp(device_name, p->title, length) != 0 ||
            (device_name[length] && strncmp(device_name + length, " (", 2) != 0))
            continue;
        *out = (struct sim_published){p->title, p->bandwidth_gb, p->tflops};
        return true;
    }
    return false;
}

void sim_preset_names(char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < PRESETS && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", presets[i].name);
}
