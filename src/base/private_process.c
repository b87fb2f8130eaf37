#include "base/private_process.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

void private_process_begin(void)
{
    const char *cores = getenv("MEDLEY_CORES");
    if (!cores || strcmp(cores, "1") != 0)
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    umask(S_IRWXG | S_IRWXO);
}
