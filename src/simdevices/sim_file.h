/* The file that describes simulated devices. Pure: from bytes to numbers.
 *
 *     # two unlike machines on one laptop
 *     [fast]                       ; the device's id is "sim:fast"
 *     preset = rtx-3060            ; fills every key that the section does not set itself
 *     decode = 240GB/s
 *     fail   = dies at 30s, garbage after 100 batches
 *
 * One key a line; '#' and ';' begin a comment. Every number has a unit. docs/simulated-devices.md
 * lists the keys; sim_keys.c is the table. A wrong line is ERROR_INVALID with "line N: " in
 * front. */
#pragma once

#include "base/error.h"
#include "base/limits.h"
#include "simdevices/sim_plant.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIM_NAME_MAX = 24, SIM_FAILURES_MAX = 4, SIM_OTHERS_MAX = 16 };

enum sim_failure_kind {
    SIM_DIES,    /* `at` seconds after it was opened: every operation fails from then on */
    SIM_HANGS,   /* `at` seconds after it was opened: operations block until the device is closed */
    SIM_REFUSES, /* an allocation that would bring what is in use above `at` bytes fails */
    SIM_LIES, /* after `at` batches: signs of results and bits of what is read back are flipped */
};

struct sim_failure {
    enum sim_failure_kind kind;
    double at;
};

struct sim_others { /* from then on other programs have so much of its memory */
    double at_s;    /* after it was opened */
    double bytes;
};

struct sim_spec {
    char name[SIM_NAME_MAX + 1]; /* of the section: a-z 0-9 - _ */
    char title[64];              /* for people; printable ASCII */
    double memory_bytes;
    double decode_bytes_per_s; /* with which weights and KV cache are read */
    double flops_per_s;
    double copy_bytes_per_s; /* host <-> device and device <-> device */
    double launch_s;         /* for every batch, whatever it computes */
    double clock_mhz;        /* 0: unknown */
    bool is_measured;        /* it does not tell its speed, as no real device does */
    char cannot[96];         /* tensor types that it does not compute, with commas between */
    bool has_heat;           /* `heat` holds */
    struct plant_params heat;
    struct sim_failure failures[SIM_FAILURES_MAX];
    uint32_t n_failures;
    struct sim_others others[SIM_OTHERS_MAX]; /* in the order of their times */
    uint32_t n_others;
};

struct sim_file {
    struct sim_spec devices[LIMIT_SIM_DEVICES];
    uint32_t n_devices; /* at least 1 */
};

/* `bytes` need no NUL. On failure *out is not to be used. */
enum error_code sim_file_parse(const char *bytes, size_t size, struct sim_file *out,
                               struct error *err);

/* The same of a file; messages begin with its path. */
enum error_code sim_file_read(const char *path, struct sim_file *out, struct error *err);
