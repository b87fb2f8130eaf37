/* Fuzz target: a file of simulated devices. Holds: what is refused has a short, printable message;
 * what is taken is within the documented ranges, has distinct names, and makes sense to the model
 * of heat. */
#include "fuzz.h"

#include "simdevices/sim_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sim_file file;

static void check_heat(const struct sim_spec *spec)
{
    const struct plant_params *heat = &spec->heat;
    FUZZ_CHECK(heat->power_idle_w >= 0 && heat->power_max_w >= heat->power_idle_w &&
               heat->power_max_w <= 1e5);
    FUZZ_CHECK(heat->thermal_mass_j_per_k > 0 && heat->resistance_k_per_w > 0 &&
               heat->hysteresis_k > 0);
    FUZZ_CHECK(heat->throttled_clock > 0 && heat->throttled_clock <= 1);
    struct plant plant = plant_rested(heat);
    FUZZ_CHECK(plant.temperature_c < heat->limit_c && !plant.throttled);
    double spent_s = plant_work(heat, &plant, 0.01);
    FUZZ_CHECK(spent_s >= 0.0099 && spent_s <= 1.01);
    FUZZ_CHECK(plant.temperature_c - plant.temperature_c == 0);
}

static void check_device(const struct sim_spec *spec)
{
    FUZZ_CHECK(spec->name[0] && strlen(spec->name) <= SIM_NAME_MAX &&
               strspn(spec->name, "abcdefghijklmnopqrstuvwxyz0123456789-_") == strlen(spec->name));
    FUZZ_CHECK(spec->title[0] && strlen(spec->title) < sizeof spec->title);
    FUZZ_CHECK(spec->memory_bytes >= 4 * 1024 * 1024 && spec->memory_bytes <= 0x1p50);
    FUZZ_CHECK(spec->decode_bytes_per_s >= 1e6 && spec->decode_bytes_per_s <= 1e15);
    FUZZ_CHECK(spec->flops_per_s >= 1e6 && spec->flops_per_s <= 1e18);
    FUZZ_CHECK(spec->copy_bytes_per_s >= 1e7 && spec->copy_bytes_per_s <= 1e15);
    FUZZ_CHECK(spec->launch_s >= 0 && spec->launch_s <= 10);
    FUZZ_CHECK(spec->n_failures <= SIM_FAILURES_MAX);
    for (uint32_t i = 0; i < spec->n_failures; i++)
        FUZZ_CHECK(spec->failures[i].at >= 0 && spec->failures[i].at <= 0x1p50);
    if (spec->has_heat)
        check_heat(spec);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err = {0};
    enum error_code code = sim_file_parse((const char *)data, size, &file, &err);
    if (code) {
        FUZZ_CHECK(code == ERROR_INVALID && err.code == code && err.text[0]);
        for (const char *at = err.text; *at; at++)
            FUZZ_CHECK((unsigned char)*at >= ' ');
        return 0;
    }
    FUZZ_CHECK(err.text[0] == '\0' && file.n_devices >= 1 && file.n_devices <= LIMIT_SIM_DEVICES);
    for (uint32_t i = 0; i < file.n_devices; i++) {
        check_device(&file.devices[i]);
        for (uint32_t j = 0; j < i; j++)
            FUZZ_CHECK(strcmp(file.devices[i].name, file.devices[j].name) != 0);
    }
    return 0;
}
