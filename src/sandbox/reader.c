#include "sandbox/reader.h"

#include "base/mem.h"
#include "base/spawn.h"
#include "sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* The sanitizers' own memory would not fit. */
#if defined __SANITIZE_ADDRESS__
enum { LIMITS_MEMORY = 0 };
#else
enum { LIMITS_MEMORY = 1 };
#endif

/* ---- the node's side --------------------------------------------------------------------- */

int reader_start(const char *program, const char *argument, int given, bool tells_errors,
                 pid_t *pid)
{
    char *const arguments[] = {(char *)(uintptr_t)program, (char *)(uintptr_t)argument, NULL};
    struct sandbox_environment *environment = mem_new(sizeof *environment);
    *pid = 0;
    if (!environment)
        return ENOMEM;
    sandbox_environment_make(environ, NULL, environment);
    const int failure = spawn_child(program, arguments, environment->variables, given,
                                    READER_DESCRIPTOR, tells_errors, pid);
    mem_free(environment);
    if (failure)
        *pid = 0;
    return failure;
}

int reader_start_with_socket(const char *program, const char *argument, bool tells_errors,
                             int *socket, pid_t *pid)
{
    int ends[2];
    *pid = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return errno;
    const int failure = reader_start(program, argument, ends[1], tells_errors, pid);
    close(ends[1]);
    if (failure)
        close(ends[0]);
    else
        *socket = ends[0];
    return failure;
}

void reader_end(pid_t pid)
{
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* ---- its own side ------------------------------------------------------------------------ */

bool reader_is_asked(int argc, char **argv, const char *argument)
{
    return argc == 2 && strcmp(argv[1], argument) == 0;
}

enum error_code reader_enter_sandbox(uint64_t memory_bytes, struct error *err)
{
    static struct sandbox_rules rules;
    const struct sandbox_need need = {.work = SANDBOX_FILES};
    const rlim_t bytes = (rlim_t)memory_bytes;
    fcntl(READER_DESCRIPTOR, F_SETFD, FD_CLOEXEC);
    if (LIMITS_MEMORY && setrlimit(RLIMIT_DATA, &(struct rlimit){bytes, bytes}))
        return error_set(err, ERROR_IO, "its process cannot limit its memory: %s", strerror(errno));
    sandbox_rules_make(&need, &rules);
    return sandbox_enter(&rules, err);
}
