#include "kernels/amx_permission.h"

#include <sys/syscall.h>
#include <unistd.h>

/* <asm/prctl.h> and the kernel's XFEATURE_XTILEDATA; headers of older systems lack the first. */
enum { AMX_ARCH_REQ_XCOMP_PERM = 0x1023, AMX_XFEATURE_XTILEDATA = 18 };

bool amx_permission_ask(void)
{
    return syscall(SYS_arch_prctl, AMX_ARCH_REQ_XCOMP_PERM, AMX_XFEATURE_XTILEDATA) == 0;
}
