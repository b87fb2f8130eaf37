#include "base/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

static int set_descriptors(posix_spawn_file_actions_t *actions, int given, int as,
                           bool tells_errors)
{
    int failure = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);
    for (int fd = 1; !failure && fd <= (tells_errors ? 1 : 2); fd++)
        failure = posix_spawn_file_actions_addopen(actions, fd, "/dev/null", O_WRONLY, 0);
    if (!failure)
        failure = posix_spawn_file_actions_adddup2(actions, given, as);
#ifdef __GLIBC__
    if (!failure)
        failure = posix_spawn_file_actions_addclosefrom_np(actions, as + 1);
#endif
    return failure;
}

static int set_signals(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int failure = posix_spawnattr_setsigmask(attributes, &none);
    if (!failure)
        failure = posix_spawnattr_setsigdefault(attributes, &all);
    if (!failure)
        failure = posix_spawnattr_setpgroup(attributes, 0);
    if (!failure)
        failure = posix_spawnattr_setflags(
            attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    return failure;
}

static int spawn_with(const char *program, char *const arguments[], char *const environment[],
                      int given, int as, bool tells_errors, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    /* posix_spawn() may return before it has tried the program: POSIX leaves that open, and in
     * QEMU's user mode it does. */
    if (access(program, X_OK) != 0)
        return errno;
    int failure = posix_spawn_file_actions_init(&actions);
    if (failure)
        return failure;
    failure = posix_spawnattr_init(&attributes);
    if (!failure) {
        failure = set_descriptors(&actions, given, as, tells_errors);
        if (!failure)
            failure = set_signals(&attributes);
        if (!failure)
            failure = posix_spawn(pid, program, &actions, &attributes, arguments, environment);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return failure;
}

int spawn_child(const char *program, char *const arguments[], char *const environment[], int given,
                int as, bool tells_errors, pid_t *pid)
{
    /* A number above all that the child's standard descriptors and `as` overwrite. */
    const int above = fcntl(given, F_DUPFD_CLOEXEC, as + 1);
    if (above < 0)
        return errno;
    const int failure = spawn_with(program, arguments, environment, above, as, tells_errors, pid);
    close(above);
    return failure;
}
