#include "gpu/cpu_runtime.h"

#include "base/this_process.h"

#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

static bool cpu_runtime_is_set(void)
{
    return getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY");
}

#define SPINS "3000"

uint32_t cpu_runtime_spins(void)
{
    const char *set = getenv("GOMP_SPINCOUNT");
    char *end;
    unsigned long spins = strtoul(set ? set : SPINS, &end, 10);
    if (*end) /* "INFINITE" */
        spins = strtoul(SPINS, NULL, 10);
    return spins < UINT32_MAX ? (uint32_t)spins : UINT32_MAX;
}

void cpu_runtime_prepare(void)
{
    /* ggml's threads meet at a barrier after every node of the graph, and wait there by spinning
     * before they sleep. libgomp's default of 300,000 turns is milliseconds: when another
     * process wants a core, each barrier burns a whole time slice of the thread that it
     * waits for. 3,000 turns (some 150 microseconds) cover the wait between equal shares of a
     * node, without the wake-ups that fewer turns cost on a quiet machine (bench/README.md). */
    if (!cpu_runtime_is_set())
        setenv("GOMP_SPINCOUNT", SPINS, 0);
}

void cpu_runtime_restart(char **argv)
{
    if (cpu_runtime_is_set())
        return;
    cpu_runtime_prepare();
    execv(this_program(), argv);
}
