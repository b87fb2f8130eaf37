/* What is known of a device: its record. gpu/gpu.h finds the devices, sensors/ reads what they say
 * of themselves. */
#pragma once

#include "base/reading.h"

/* What computes in the end: a software Vulkan driver is DEVICE_CPU too (its backend says
 * "vulkan"). */
enum device_kind { DEVICE_CPU, DEVICE_GPU, DEVICE_INTEGRATED_GPU };

enum precision {
    PRECISION_F32 = 1,
    PRECISION_F16 = 2,
    PRECISION_BF16 = 4,
    PRECISION_INT8 = 8,
    PRECISION_INT4 = 16
};

enum support_level { SUPPORT_TESTED, SUPPORT_EXPECTED, SUPPORT_EXPERIMENTAL };

/* The fifteen facts of a device, and what is wrong with its driver. Text that is not known is "".
 */
struct device_info {
    char id[32];            /* what --devices takes: "cpu", "vulkan0", "cuda1", "sim:fast" */
    char name[128];         /* as the driver says it */
    char vendor[32];        /* "Intel", "NVIDIA", "AMD", "Apple", "Mesa" … */
    char backend[16];       /* "cpu", "vulkan", "cuda", "hip", "metal", "opencl", "sycl", "sim" */
    char architecture[64];  /* instruction set or compute capability */
    char driver[64];        /* driver version, as the driver says it: "Mesa 25.0.7-2" */
    char driver_name[64];   /* "radv", "NVIDIA", "amdgpu" … */
    char driver_fault[192]; /* a known fault of that version, and the one that mends it; "": none */
    char pci[24];           /* "0000:c1:00.0", else "" */
    enum device_kind kind;
    uint64_t memory_total_bytes;
    uint64_t memory_free_bytes; /* when it was opened; device_memory() reads it now */
    struct reading compute_units;
    struct reading clock_mhz;
    struct reading
        bandwidth_mb_per_s;     /* measured, never a datasheet; of a simulated device its file's */
    struct reading peak_mflops; /* as above */
    struct reading threads_per_block_max;
    uint32_t precisions;         /* bits of enum precision */
    struct reading peer_to_peer; /* 1: reaches another device's memory without the host; 0: not */
    enum support_level support;
};
