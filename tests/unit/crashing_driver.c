/* A Vulkan driver (named by a manifest that test_devices_command.c writes) that takes down whoever
 * loads it. */
#include <signal.h>

__attribute__((constructor)) static void crash(void)
{
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
}
