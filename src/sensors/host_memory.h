/* The memory of this machine, or of this process's control group or one around it where that leaves
 * less (cgroup v1 and v2: Documentation/admin-guide of the kernel), by its path in
 * /proc/self/cgroup and as seen from inside a container, where the group is the root.
 *
 * Pages of files count as available: the kernel gives them up for whoever needs memory. In a
 * group's use they are counted as used, and a mapped model would seem to fill it; so
 * they are taken off again. */
#pragma once

#include "sensors/sysfs.h"

struct host_memory {
    uint64_t machine_bytes; /* without control groups */
    uint64_t total_bytes;
    uint64_t available_bytes;
    bool has_available;
};

/* False, with *out zeroed, when the kernel does not say. */
bool host_memory_of(const struct sysfs *fs, struct host_memory *out);

/* Part of the last ten seconds in which some task waited for memory, 0 … 1 (pressure stall
 * information: Documentation/accounting/psi.rst): of this process's group where it has its own
 * figures; else of the machine, but only where little of its memory is available, for else somebody
 * waits within the limit of a group of his own. False, with 0: the kernel does not say. */
bool host_memory_stall(const struct sysfs *fs, double *part);
