/* The parent's side: starts the children, waits with a deadline, kills, reaps. */
#include "gpu/probe.h"

#include "base/clock.h"
#include "base/durable_file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/spawn.h"
#include "base/state_folder.h"
#include "sandbox/sandbox.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    POLL_MS = 100, /* a child may be gone while a helper of its driver keeps the pipe open: look at
                      both */
    POLL_EOF_MS = 5, /* and one that closed its pipe is about to end, most likely */
    ALARM_AFTER_S = 5,
};

/* ---- the answer ------------------------------------------------------------------------ */

bool probe_parse(const char *line, size_t size, enum probe_result *result, char *reason,
                 size_t reason_size)
{
    static const char passed[] = "medley-probe 1 passed", failed[] = "medley-probe 1 failed ";
    reason[0] = 0;
    if (size == sizeof passed - 1 && memcmp(line, passed, size) == 0) {
        *result = PROBE_PASSED;
        return true;
    }
    if (size < sizeof failed || memcmp(line, failed, sizeof failed - 1) != 0)
        return false;
    size_t length = size - (sizeof failed - 1);
    length = length < reason_size - 1 ? length : reason_size - 1;
    for (size_t i = 0; i < length; i++) {
        char byte = line[sizeof failed - 1 + i];
        reason[i] = byte >= ' ' && byte <= '~' ? byte : '?';
    }
    reason[length] = 0;
    *result = PROBE_FAILED;
    return true;
}

/* Takes what the pipe holds. True when a whole line is there. */
static bool probe_read_answer(struct probe *probe)
{
    while (probe->n_line < sizeof probe->line) {
        ssize_t got =
            read(probe->answer, probe->line + probe->n_line, sizeof probe->line - probe->n_line);
        if (got < 0 && errno == EINTR)
            continue;
        probe->answer_ended = got == 0;
        if (got <= 0)
            break;
        probe->n_line += (size_t)got;
    }
    return memchr(probe->line, '\n', probe->n_line) != NULL;
}

/* ---- starting -------------------------------------------------------------------------- */

/* Where drivers keep compiled shaders; "": nowhere. */
static void probe_find_folder(char folder[PATH_MAX])
{
    struct error ignored;
    if (!state_folder_file("drivers", folder, PATH_MAX) || durable_make_folder(folder, &ignored))
        folder[0] = 0;
}

static int probe_spawn(struct probe *probe, const struct probe_options *options, int answer)
{
    char index[16], parent[16], limit_s[16], folder[PATH_MAX] = "";
    struct sandbox_environment *environment = mem_new(sizeof *environment);
    if (!environment)
        return ENOMEM;
    if (!options->is_free)
        probe_find_folder(folder);
    sandbox_environment_make(environ, folder[0] ? folder : NULL, environment);
    snprintf(index, sizeof index, "%u", probe->index);
    snprintf(parent, sizeof parent, "%ld", (long)getpid());
    snprintf(limit_s, sizeof limit_s, "%" PRIu64, options->limit_ms / 1000 + ALARM_AFTER_S);
    char *const arguments[] = {(char *)(uintptr_t)options->program,
                               (char *)(uintptr_t)PROBE_ARGUMENT,
                               (char *)(uintptr_t)probe->backend,
                               index,
                               (char *)(uintptr_t)probe->name,
                               parent,
                               limit_s,
                               (char *)(uintptr_t)(options->is_free ? PROBE_FREE : ""),
                               folder,
                               NULL};
    const int failure = spawn_child(options->program, arguments,
                                    options->is_free ? environ : environment->variables, answer,
                                    PROBE_DESCRIPTOR, false, &probe->pid);
    mem_free(environment);
    return failure;
}

static void probe_start(struct probe *probe, const struct probe_options *options)
{
    probe->result = PROBE_NOT_RUN;
    probe->reason[0] = 0;
    probe->n_line = 0;
    probe->answer_ended = false;
    probe->pid = 0;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        snprintf(probe->reason, sizeof probe->reason, "no pipe: %s", strerror(errno));
        return;
    }
    int failure = fcntl(ends[0], F_SETFL, O_NONBLOCK) ? errno : 0;
    if (!failure)
        failure = probe_spawn(probe, options, ends[1]);
    close(ends[1]);
    probe->answer = ends[0];
    if (failure) {
        snprintf(probe->reason, sizeof probe->reason, "%s: %s", options->program,
                 strerror(failure));
        close(ends[0]);
        probe->pid = 0;
    }
}

/* ---- ending ---------------------------------------------------------------------------- */

/* Signals that a process brings upon itself. Any other one came from outside. */
static bool is_crash(int number)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGTRAP, SIGSYS};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (number == own[i])
            return true;
    }
    return false;
}

static void judge_status(struct probe *probe, int status)
{
    if (WIFSIGNALED(status)) {
        int number = WTERMSIG(status);
        probe->result = is_crash(number) ? PROBE_CRASHED : PROBE_FAILED;
        snprintf(probe->reason, sizeof probe->reason, "it %s (signal %d) during verification",
                 is_crash(number) ? "crashed" : "was killed", number);
    } else {
        probe->result = PROBE_FAILED;
        snprintf(probe->reason, sizeof probe->reason,
                 "its driver ended the process (status %d) during verification",
                 WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
}

/* The process has ended or is of no further use. `status` NULL: it must still be ended. */
static void probe_finish(struct probe *probe, const int *status, uint64_t limit_ms)
{
    int local = 0;
    if (!status) {
        kill(probe->pid, SIGKILL);
        while (waitpid(probe->pid, &local, 0) < 0 && errno == EINTR)
            ;
    }
    const char *end = memchr(probe->line, '\n', probe->n_line);
    bool overlong = !end && probe->n_line == sizeof probe->line;
    bool answered = end && probe_parse(probe->line, (size_t)(end - probe->line), &probe->result,
                                       probe->reason, sizeof probe->reason);
    if (!answered && (end || overlong)) {
        probe->result = PROBE_FAILED;
        snprintf(probe->reason, sizeof probe->reason,
                 "its verification answered what cannot be understood");
    } else if (!answered && status) {
        judge_status(probe, *status);
    } else if (!answered) {
        probe->result = PROBE_HUNG;
        snprintf(probe->reason, sizeof probe->reason, "it did not answer within %.4g s",
                 (double)limit_ms / 1000);
    }
    close(probe->answer);
    probe->pid = 0;
}

/* True when the child is through. */
static bool probe_look(struct probe *probe, uint64_t limit_ms)
{
    int status = 0;
    pid_t ended = waitpid(probe->pid, &status, WNOHANG);
    bool line = probe_read_answer(probe); /* after the wait: what a dead child wrote is all there */
    bool gone = ended == probe->pid ||
                (ended < 0 && errno == ECHILD); /* who ignores SIGCHLD gets no status */
    if (gone)
        probe_finish(probe, &status, limit_ms);
    else if (line || probe->n_line == sizeof probe->line)
        probe_finish(probe, NULL, limit_ms);
    return !probe->pid;
}

void probe_run(struct probe *probes, uint32_t count, const struct probe_options *options)
{
    const uint64_t limit_ms = options->limit_ms;
    assert(count <= LIMIT_DEVICES && options->program);
    uint64_t start_ns[LIMIT_DEVICES];
    uint32_t n_running = 0;
    for (uint32_t i = 0; i < count; i++) {
        start_ns[i] = clock_now_ns();
        probe_start(&probes[i], options);
        n_running += probes[i].pid != 0;
    }
    while (n_running) {
        struct pollfd wait[LIMIT_DEVICES];
        nfds_t n_wait = 0;
        int timeout_ms = POLL_MS;
        for (uint32_t i = 0; i < count; i++) {
            if (probes[i].pid && probes[i].answer_ended)
                timeout_ms = POLL_EOF_MS;
            else if (probes[i].pid)
                wait[n_wait++] = (struct pollfd){.fd = probes[i].answer, .events = POLLIN};
        }
        poll(wait, n_wait, timeout_ms);
        for (uint32_t i = 0; i < count; i++) {
            if (!probes[i].pid)
                continue;
            uint64_t took_ms = (clock_now_ns() - start_ns[i]) / 1000000;
            bool done = probe_look(&probes[i], limit_ms);
            if (!done && took_ms >= limit_ms) {
                probe_finish(&probes[i], NULL, limit_ms);
                done = true;
            }
            probes[i].took_ms = took_ms;
            n_running -= done;
        }
    }
}
