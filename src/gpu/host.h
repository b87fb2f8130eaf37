/* What the operating system says of the machine's CPU, its memory and NVIDIA's driver. */
#pragma once

#include "gpu/gpu.h"

struct host_cpu {
    char name[128]; /* the model's name; the machine type where there is none */
    char vendor[32];
    struct reading clock_mhz;
};

struct host_cpu host_cpu_read(void);

/* The clock, in kHz, that its owner, the firmware or a power profile has set; 0: the kernel does
 * not say, as in most virtual machines. */
uint32_t host_clock_limit_khz(void);

/* The version of NVIDIA's kernel driver; `text` stays as it is where there is none. */
void host_nvidia_driver(char *text, size_t size);

/* Cores (hardware threads) that this process may run on; at least 1. */
uint32_t host_thread_count(void);

/* Memory of the machine, or of this process's control group where that is less. */
struct device_memory host_memory_read(void);
