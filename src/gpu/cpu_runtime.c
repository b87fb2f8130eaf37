#include "gpu/cpu_runtime.h"

#include <stdlib.h>

void cpu_runtime_prepare(void)
{
    /* libgomp's threads wait for the next graph node by spinning and then sleep. Its default
     * spins far longer than a gap between two tokens is worth, at the cost of a whole core. */
    setenv("GOMP_SPINCOUNT", "20000", 0);
}
