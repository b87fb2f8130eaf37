#include "gpu/cpu_runtime.h"

#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

static bool is_set(void)
{
    return getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY");
}

void cpu_runtime_prepare(void)
{
    /* Threads wait for the next node of the graph by spinning, then sleep. libgomp's default
     * of 300,000 turns burns a core for milliseconds after each token. */
    if (!is_set())
        setenv("GOMP_SPINCOUNT", "20000", 0);
}

void cpu_runtime_restart(char **argv)
{
    if (is_set())
        return;
    cpu_runtime_prepare();
    execv("/proc/self/exe", argv);
}
