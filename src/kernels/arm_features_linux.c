#include "kernels/arm_features.h"

#include <sys/auxv.h>

bool arm_has_dotprod(void)
{
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
}

bool arm_has_i8mm(void)
{
    return getauxval(AT_HWCAP2) & HWCAP2_I8MM;
}
