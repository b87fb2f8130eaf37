/* The registry of devices: any bytes. What is accepted is within its limits, and is the same after
 * it has been written and read again. */
#include "fuzz.h"

#include "base/limits.h"
#include "base/mem.h"
#include "gpu/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_measurement(const struct device_measurement *measurement)
{
    FUZZ_CHECK(measurement->n_runs == 0 || (measurement->median > 0 && measurement->spread >= 0));
}

static void check_entry(const struct registry_entry *entry)
{
    FUZZ_CHECK(entry->result <= REGISTRY_HUNG);
    FUZZ_CHECK(memchr(entry->reason, 0, sizeof entry->reason));
    const struct device_calibration *calibration = &entry->calibration;
    FUZZ_CHECK(calibration->n_types <= CALIBRATION_TYPES_MAX &&
               calibration->n_peers <= CALIBRATION_PEERS_MAX);
    for (uint32_t i = 0; i < calibration->n_types; i++) {
        FUZZ_CHECK(calibration->types[i].name[0]);
        check_measurement(&calibration->types[i].decode_bytes_per_s);
        check_measurement(&calibration->types[i].prefill_flops);
    }
    check_measurement(&calibration->launch_ns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct registry registry, again;
    struct error err = {0};
    if (registry_parse((const char *)data, size, &registry, &err)) {
        FUZZ_CHECK(err.text[0] && !registry.entries && !registry.count);
        return 0;
    }
    FUZZ_CHECK(registry.count <= LIMIT_REGISTRY_ENTRIES);
    for (uint32_t i = 0; i < registry.count; i++)
        check_entry(&registry.entries[i]);
    char *json, *json_again;
    size_t json_size, json_again_size;
    FUZZ_CHECK(!registry_write_json(&registry, &json, &json_size, NULL));
    FUZZ_CHECK(!registry_parse(json, json_size, &again, NULL));
    FUZZ_CHECK(!registry_write_json(&again, &json_again, &json_again_size, NULL));
    FUZZ_CHECK(json_size == json_again_size && memcmp(json, json_again, json_size) == 0);
    mem_free(json);
    mem_free(json_again);
    registry_deinit(&registry);
    registry_deinit(&again);
    return 0;
}
