/* What the operating system says of the machine's CPU, its memory and NVIDIA's driver. */
#pragma once

#include "gpu/gpu.h"
#include "sensors/sysfs.h"

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

/* Hardware threads that this process may run on, and how many cores they belong to: threads of one
 * core share its units. A quota of the control group bounds both. At least 1 each. */
struct host_cores {
    uint32_t n_threads, n_cores;
};
struct host_cores host_cores_read(void);

/* How many cores the hardware threads are of, by the kernel's files: thread i counts where
 * `allowed[i]`. One of which they say nothing is a core of its own. */
uint32_t host_count_cores(const struct sysfs *fs, const bool *allowed, uint32_t n_threads);

/* Memory of the machine, or of this process's control group where that is less. */
struct device_memory host_memory_read(void);
