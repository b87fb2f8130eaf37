/* Fuzz target: a scenario of `medley sim`. Holds: what is refused has a short, printable message;
 * what is taken fits together, and written and read again it is the same. */
#include "fuzz.h"

#include "sim/scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct scenario scenario, again;
    struct buffer text = {0}, other = {0};
    struct error err = {0};
    const enum error_code code = scenario_parse((const char *)data, size, &scenario, &err);
    if (code) {
        FUZZ_CHECK(code == ERROR_INVALID && err.code == code && err.text[0]);
        return 0;
    }
    FUZZ_CHECK(scenario.n_nodes && scenario.n_nodes <= SCENARIO_NODES &&
               scenario.n_faults <= SCENARIO_FAULTS);
    scenario_write(&scenario, &text);
    FUZZ_CHECK(!text.failed);
    if (text.size <= SCENARIO_FILE_BYTES) {
        FUZZ_CHECK(scenario_parse(text.data, text.size, &again, &err) == ERROR_NONE);
        scenario_write(&again, &other);
        FUZZ_CHECK(other.size == text.size && memcmp(other.data, text.data, text.size) == 0);
        scenario_deinit(&again);
    }
    buffer_deinit(&text);
    buffer_deinit(&other);
    scenario_deinit(&scenario);
    return 0;
}
