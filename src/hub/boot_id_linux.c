#include "hub/boot_id.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { UUID_CHARACTERS = 36 };

void boot_id(char id[static BOOT_ID_BYTES])
{
    memset(id, 0, BOOT_ID_BYTES);
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (read(fd, id, BOOT_ID_BYTES - 1) < UUID_CHARACTERS)
        memset(id, 0, BOOT_ID_BYTES);
    close(fd);
}
