/* Verification in a child process: a driver that crashes or hangs takes the child with it, not
 * Medley.
 *
 * The child is a program started anew (posix_spawn, no fork of a process with threads) with a
 * private first argument; its main() begins with gpu_prober_main(), which sees that argument, does
 * the work and never returns. `medley` is such a program. A program that is not passes no prober in
 * gpu_options, and its devices are verified on their own threads in its own process: a hanging
 * driver is given up there too, a crashing one is not survived.
 *
 * The child has no other descriptor than standard ones on /dev/null and the pipe for its answer,
 * its own process group (a Ctrl-C meant for the parent is not a crash), no core file, and dies with
 * its parent (Linux: PR_SET_PDEATHSIG; everywhere: an alarm a little after its time limit). It
 * loads the CPU's backend and the one it was asked for, verifies device `index` as verify.h says,
 * shuts it down, and answers with one line:
 *
 *     medley-probe 1 passed
 *     medley-probe 1 failed REASON
 *
 * Before any of that it enters the sandbox of the devices' processes (sandbox/sandbox.h): it reads
 * libraries and its backend's files, uses its backend's devices, keeps compiled shaders in
 * STATE/drivers, where the device's own process finds them, and has no network. A probe that the
 * sandbox is too narrow for fails; `is_free` leaves it out.
 *
 * Loading a backend and listing its devices already runs code of drivers, and is tried in a child
 * in the same way: a probe without a device's name does that and no more. */
#pragma once

#include "gpu/device_impl.h"

#include <sys/types.h>

enum probe_result {
    PROBE_NOT_RUN, /* no child could be started: the system's reason */
    PROBE_PASSED,
    PROBE_FAILED,  /* the child says why; or it was killed from outside, which says nothing of the
                      device */
    PROBE_CRASHED, /* by a signal that a broken program brings upon itself */
    PROBE_HUNG,    /* killed at the limit */
};

enum { PROBE_LINE_MAX = 512 };

struct probe {
    const char *backend; /* given: what to verify. Texts outlive the run */
    uint32_t index;
    const char *name; /* the device's: the child refuses when its list has another at `index`. "":
                         load, list, no more */

    enum probe_result result; /* found */
    char reason[256];         /* "" when it passed */
    uint64_t took_ms;

    pid_t pid; /* while it runs; 0 before and after */
    int answer;
    bool answer_ended;
    char line[PROBE_LINE_MAX];
    size_t n_line;
};

struct probe_options {
    const char *program; /* this_program() */
    uint64_t limit_ms;   /* of each child; one that is late is killed */
    bool is_free;        /* in no sandbox, and with the whole environment */
};

/* Starts one child for each probe, all at once, and waits for all. Every child has been reaped when
 * it returns. */
void probe_run(struct probe *probes, uint32_t count, const struct probe_options *options);

/* Reads a child's line; false when it is none. `reason` gets printable text alone. Pure. */
bool probe_parse(const char *line, size_t size, enum probe_result *result, char *reason,
                 size_t reason_size);

/* The table and family of the devices of a backend. ERROR_* with the reason when there is none. */
typedef enum error_code probe_lookup(const char *backend, const struct device_impl **impl,
                                     const void **family, struct error *err);

/* What gpu_prober_main() does, with the tests' devices in the place of ggml's. */
void probe_main(int argc, char **argv, probe_lookup *lookup);

#define PROBE_ARGUMENT "--verify-one-device-and-answer-on-descriptor-3"
#define PROBE_FREE "free"
enum { PROBE_DESCRIPTOR = 3 };
