#include "sandbox/sandbox.h"

#include <assert.h>
#include <stdio.h>

bool sandbox_lacks(struct sandbox_support support, char *text, size_t size)
{
    /* Linux's Documentation/userspace-api/landlock.rst: what each version of it brought. Renaming
     * (2) and TCP (4) are not here: before 2 it was refused altogether, and seccomp refuses every
     * socket. */
    static const struct {
        int since;
        const char *lack;
    } steps[] = {
        {1, "open any file of this user (Landlock: Linux 5.13)"},
        {3, "truncate files that it may only read (Landlock 3: Linux 6.2)"},
        {5, "send any ioctl to devices that it may only read (Landlock 5: Linux 6.10)"},
    };
    assert(size);
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof steps / sizeof *steps && used < size; i++) {
        if (support.landlock < steps[i].since && (i == 0 || support.landlock))
            used +=
                (size_t)snprintf(text + used, size - used, "%s%s", used ? "; " : "", steps[i].lack);
    }
    if (!support.seccomp && used < size)
        snprintf(text + used, size - used,
                 "%sreach the network, start programs and signal other processes (seccomp)",
                 used ? "; " : "");
    return text[0];
}
