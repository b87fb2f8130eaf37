#include "base/descriptors.h"

#include "base/limits.h"

#include <sys/resource.h>

uint32_t descriptors_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > LIMIT_DESCRIPTORS)
        return LIMIT_DESCRIPTORS;
    return (uint32_t)limit.rlim_cur;
}

uint32_t descriptors_raise(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < LIMIT_DESCRIPTORS) {
        limit.rlim_cur = limit.rlim_max < LIMIT_DESCRIPTORS ? limit.rlim_max : LIMIT_DESCRIPTORS;
        setrlimit(RLIMIT_NOFILE, &limit); /* at most the hard limit: always allowed */
    }
    return descriptors_limit();
}
