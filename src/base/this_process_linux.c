#include "base/this_process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

const char *this_program(void)
{
    return "/proc/self/exe";
}

bool this_program_path(char path[static PATH_MAX])
{
    const ssize_t length = readlink(this_program(), path, PATH_MAX);
    if (length >= 0 && length < PATH_MAX) {
        path[length] = 0;
        return true;
    }
    if (length >= 0)
        errno = ENAMETOOLONG;
    path[0] = 0;
    return false;
}

void descriptor_path(char path[static DESCRIPTOR_PATH_BYTES], int fd)
{
    snprintf(path, DESCRIPTOR_PATH_BYTES, "/proc/self/fd/%d", fd);
}

void this_process_dies_with(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it died before the kernel was told */
        _exit(1);
}
