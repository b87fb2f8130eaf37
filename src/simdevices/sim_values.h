/* Numbers with units, as they stand in a file of simulated devices. Pure. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* A piece of the file; not NUL-terminated. */
struct sim_text {
    const char *at;
    size_t size;
};

struct sim_text sim_text_trim(struct sim_text text);
bool sim_text_is(struct sim_text text, const char *word);

/* The text as it can be shown: short, and printable. */
struct sim_shown {
    char text[48];
};
struct sim_shown sim_text_show(struct sim_text text);

enum sim_unit {
    SIM_BYTES,
    SIM_BYTES_PER_S,
    SIM_FLOPS,
    SIM_SECONDS,
    SIM_WATTS,
    SIM_JOULES_PER_K,
    SIM_KELVIN_PER_W,
    SIM_CELSIUS,
    SIM_KELVIN,
    SIM_SHARE, /* "60%" is 0.6 */
    SIM_MHZ,
};

/* What a value may be; `words` says it to people. */
struct sim_range {
    double min, max;
    const char *words; /* "4MiB to 1PiB" */
};

/* "12GiB" or "12 GiB": a decimal number and a unit of the kind; the value in the base unit.
 * Messages begin with the name of the key. */
enum error_code sim_value_parse(const char *key, struct sim_text text, enum sim_unit unit,
                                struct sim_range range, double *out, struct error *err);

/* A whole number without a unit. */
enum error_code sim_count_parse(const char *key, struct sim_text text, struct sim_range range,
                                double *out, struct error *err);
