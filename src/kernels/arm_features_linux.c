#include "kernels/arm_features.h"

#include <sys/auxv.h>

bool arm_has_dotprod(void)
{
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
}
