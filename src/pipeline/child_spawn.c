/* Starting and ending a device's process, and the socket to it. */
#include "pipeline/children_impl.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/spawn.h"
#include "sandbox/sandbox.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { REAP_MS = 5000 };

/* ---- starting --------------------------------------------------------------------------- */

static char *child_text_of(const char *text)
{
    return (char *)(uintptr_t)(text ? text : "");
}

/* Its own alone, so that no other's driver is loaded. Simulated ones have none. */
static const char *child_backend(const struct child *child)
{
    const struct children_options *options = &child->children->options;
    if (options->sim_file)
        return "cpu";
    return child->local ? device_info(child->local)->backend : options->backend;
}

static int child_fork(const struct child *child, int socket, pid_t *pid)
{
    const struct children_options *options = &child->children->options;
    struct sandbox_environment *environment = mem_new(sizeof *environment);
    if (!environment)
        return ENOMEM;
    sandbox_environment_make(environ, options->folder, environment);
    char parent[16], threads[16];
    snprintf(parent, sizeof parent, "%ld", (long)getpid());
    snprintf(threads, sizeof threads, "%u", options->n_cpu_threads);
    char *const arguments[CHILD_ARGUMENTS + 1] = {
        child_text_of(options->program),
        child_text_of(CHILD_ARGUMENT),
        child_text_of(child->device),
        parent,
        threads,
        child_text_of(child_backend(child)),
        child_text_of(options->sim_file),
        child_text_of(options->registry),
        child_text_of(options->folder),
        child_text_of(options->no_sandbox ? CHILD_FREE : NULL),
        NULL};
    const int failure = spawn_child(options->program, arguments, environment->variables, socket,
                                    CHILD_DESCRIPTOR, true, pid);
    mem_free(environment);
    return failure;
}

enum error_code child_spawn(const struct child *child, pid_t *pid, int *out, struct error *err)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return error_set(err, ERROR_IO, "no socket for the process of %s: %s", child->device,
                         strerror(errno));
    const int failure = child_fork(child, ends[1], pid);
    close(ends[1]);
    if (failure) {
        close(ends[0]);
        return error_set(err, ERROR_IO, "cannot start the process of %s: %s", child->device,
                         strerror(failure));
    }
    *out = ends[0];
    return ERROR_NONE;
}

/* ---- ending ----------------------------------------------------------------------------- */

bool child_reap(pid_t pid, char *text, size_t size)
{
    const uint64_t begin_ns = clock_now_ns();
    int status = 0;
    pid_t ended;
    kill(pid, SIGKILL); /* a process that ended by itself keeps its own status */
    while ((ended = waitpid(pid, &status, WNOHANG)) == 0 || (ended < 0 && errno == EINTR)) {
        if (clock_now_ns() - begin_ns > (uint64_t)REAP_MS * 1000000) {
            snprintf(text, size, "cannot be killed");
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    if (ended < 0)
        snprintf(text, size, "has ended");
    else if (WIFSIGNALED(status))
        snprintf(text, size, "was ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(text, size, "ended by itself (status %d)", WEXITSTATUS(status));
    return true;
}

/* ---- words ------------------------------------------------------------------------------ */

enum { HANDED_MAX = 1 + LIMIT_MODEL_PARTS }; /* below the 253 that the system passes at once */

union child_control {
    struct cmsghdr head;
    char room[CMSG_SPACE(HANDED_MAX * sizeof(int))];
};

static void child_hand(struct msghdr *message, union child_control *control,
                       const struct child_handed *handed)
{
    const size_t files = handed->n_files * sizeof handed->files[0];
    unsigned char *at = CMSG_DATA(&control->head);
    message->msg_control = control->room;
    message->msg_controllen = CMSG_SPACE(sizeof handed->rings + files);
    control->head =
        (struct cmsghdr){CMSG_LEN(sizeof handed->rings + files), SOL_SOCKET, SCM_RIGHTS};
    memcpy(at, &handed->rings, sizeof handed->rings);
    memcpy(at + sizeof handed->rings, handed->files, files);
}

enum error_code child_say(int socket, const struct child_word *word,
                          const struct child_handed *handed, struct error *err)
{
    struct buffer bytes = {0};
    union child_control control = {0};
    child_word_write(word, &bytes);
    if (bytes.failed) {
        buffer_deinit(&bytes);
        return error_set(err, ERROR_NO_MEMORY,
                         "not enough memory for a word to a device's process");
    }
    struct iovec piece = {bytes.data, bytes.size};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    if (handed)
        child_hand(&message, &control, handed);
    ssize_t sent;
    do
        sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    const bool ok = sent == (ssize_t)bytes.size;
    buffer_deinit(&bytes);
    return ok ? ERROR_NONE
              : error_set(err, ERROR_IO, "cannot talk to its process: %s", strerror(errno));
}

void child_drop_handed(struct child_handed *handed)
{
    if (handed->rings >= 0)
        close(handed->rings);
    for (uint32_t i = 0; i < handed->n_files; i++)
        close(handed->files[i]);
    handed->rings = -1;
    handed->n_files = 0;
}

/* The descriptors that came along; what is more than these, or anything else, is not taken. */
static void child_take_handed(struct msghdr *message, struct child_handed *taken)
{
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = 0; at + sizeof(int) <= head->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
            int one;
            memcpy(&one, CMSG_DATA(head) + at, sizeof one);
            if (taken->rings < 0)
                taken->rings = one;
            else if (taken->n_files < LIMIT_MODEL_PARTS)
                taken->files[taken->n_files++] = one;
            else
                close(one);
        }
    }
}

int child_hear(int socket, bool waits, struct child_word *word, struct child_handed *handed,
               struct error *err)
{
    unsigned char bytes[LIMIT_CHILD_WORD_BYTES];
    union child_control control;
    struct iovec piece = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    ssize_t got;
    do
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | (waits ? 0 : MSG_DONTWAIT));
    while (got < 0 && (errno == EINTR ||
                       errno == ECONNRESET)); /* the latter once: its last words come after it */
    handed->rings = -1;
    handed->n_files = 0;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    if (got <= 0) {
        error_set(err, ERROR_IO, "the other end has gone");
        return -1;
    }
    child_take_handed(&message, handed);
    if (!(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) &&
        !child_word_read(bytes, (size_t)got, word, err))
        return 1;
    error_set(err, ERROR_DEVICE, "its process sent a malformed message");
    child_drop_handed(handed);
    return -1;
}
