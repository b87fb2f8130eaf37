/* What the operating system says of the machine's CPU and memory. */
#pragma once

#include "gpu/gpu.h"

struct host_cpu {
    char name[128]; /* the model's name; the machine type where there is none */
    char vendor[32];
    struct reading clock_mhz;
};

struct host_cpu host_cpu_read(void);

/* Cores (hardware threads) that this process may run on; at least 1. */
uint32_t host_thread_count(void);

/* Memory of the machine, or of this process's control group where that is less. */
struct device_memory host_memory_read(void);
