/* Cores and their hardware threads, by sysfs and the scheduler's mask. */
#include "gpu/host.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* cgroup v2, as seen from inside: "QUOTA PERIOD" or "max PERIOD". 0: no quota. */
static uint32_t quota_threads(void)
{
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (!file)
        return 0;
    uint64_t quota, period;
    int n = fscanf(file, "%" SCNu64 " %" SCNu64, &quota, &period);
    fclose(file);
    if (n != 2 || !period || !quota || quota / period > 4096)
        return 0;
    return (uint32_t)((quota + period - 1) / period);
}

/* The first allowed thread of a list such as "0-1,8-9"; `own` where the list is odd. */
static uint32_t list_first(char *at, const bool *allowed, uint32_t n_threads, uint32_t own)
{
    for (; *at >= '0' && *at <= '9'; at += *at == ',') {
        const unsigned long from = strtoul(at, &at, 10);
        const unsigned long to = *at == '-' ? strtoul(at + 1, &at, 10) : from;
        for (unsigned long i = from; i <= to && i < n_threads; i++) {
            if (allowed[i])
                return (uint32_t)i;
        }
    }
    return own;
}

uint32_t host_count_cores(const struct sysfs *fs, const bool *allowed, uint32_t n_threads)
{
    char list[256];
    uint32_t n_cores = 0;
    for (uint32_t i = 0; i < n_threads; i++) {
        if (!allowed[i])
            continue;
        const bool is_known = sysfs_text(fs, list, sizeof list,
                                         "sys/devices/system/cpu/cpu%u/topology/"
                                         "thread_siblings_list",
                                         i) == SYSFS_OK;
        n_cores += !is_known || list_first(list, allowed, n_threads, i) == i;
    }
    return n_cores;
}

struct host_cores host_cores_read(void)
{
    static const struct sysfs machine;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t quota = quota_threads();
    struct host_cores cores = {0};
    bool allowed[CPU_SETSIZE];
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) == 0) {
        for (uint32_t i = 0; i < CPU_SETSIZE; i++)
            allowed[i] = CPU_ISSET(i, &mask);
        cores.n_threads = (uint32_t)CPU_COUNT(&mask);
        cores.n_cores = host_count_cores(&machine, allowed, CPU_SETSIZE);
    }
    if (!cores.n_cores) /* more processors than the mask has */
        cores.n_threads = cores.n_cores = online > 0 ? (uint32_t)online : 1;
    if (quota && quota < cores.n_threads)
        cores.n_threads = quota;
    if (cores.n_cores > cores.n_threads)
        cores.n_cores = cores.n_threads;
    return cores;
}
