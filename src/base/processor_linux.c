#include "base/processor.h"

#include <sys/auxv.h>

bool processor_has_aes(void)
{
#if defined(__x86_64__) || defined(__i386__)
    return __builtin_cpu_supports("aes");
#elif defined(__aarch64__)
    return (getauxval(AT_HWCAP) & (1 << 3)) != 0; /* HWCAP_AES */
#else
    return true;
#endif
}
