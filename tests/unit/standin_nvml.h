/* A library in the place of libnvidia-ml.so.1: one GPU at 0000:01:00.0, which behaves or does not.
 *
 * The environment MEDLEY_STANDIN_NVML says how at start (normal, no_driver, no_permission,
 * mismatch, errors, nonsense, slow, hang, hang_init); standin_nvml_set() changes it, also while a
 * call hangs. */
#pragma once

enum standin_mode {
    STANDIN_NORMAL,    /* 64 °C, 150 W of 300, 1500 MHz, 8 of 24 GiB used, 42 % busy */
    STANDIN_NO_DRIVER, /* nvmlInit says so; likewise the next two */
    STANDIN_NO_PERMISSION,
    STANDIN_MISMATCH,
    STANDIN_ERRORS,   /* every reading answers NVML_ERROR_UNKNOWN */
    STANDIN_LOST,     /* the GPU has gone: NVML_ERROR_GPU_IS_LOST, and no handle is found */
    STANDIN_NONSENSE, /* 300 °C, 4 GW, more memory used than there is, 250 % busy */
    STANDIN_SLOW,     /* 300 ms for the temperature */
    STANDIN_HANG,     /* the temperature never comes, until the mode is changed */
    STANDIN_HANG_INIT,
    STANDIN_MODES,
};
typedef void standin_set(enum standin_mode mode); /* standin_nvml_set */
typedef unsigned standin_count(void); /* standin_nvml_open: nvmlInit less nvmlShutdown */
