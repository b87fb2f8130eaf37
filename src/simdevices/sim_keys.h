/* The keys of one section of a file of simulated devices. For sim_file.c. Pure. */
#pragma once

#include "simdevices/sim_file.h"
#include "simdevices/sim_values.h"

/* A section while it is read. A zeroed one is empty. */
struct sim_section {
    struct sim_spec spec;
    char preset[24];
    uint32_t set; /* bits: the keys that it sets itself */
};

/* One line. Unknown and repeated keys are refused. */
enum error_code sim_section_set(struct sim_section *section, struct sim_text key,
                                struct sim_text value, struct error *err);

/* Fills in the preset and the defaults, and checks that all is there and makes sense together. */
enum error_code sim_section_finish(struct sim_section *section, struct error *err);
