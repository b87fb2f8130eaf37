/* What a process gives up, for good, before it touches what strangers made: a driver at work on a
 * foreign model's weights, a foreign file's header, a foreign template.
 *
 * sandbox_rules_make() is pure: it lists what such a process may still open. sandbox_enter() is
 * thin: it asks the kernel to refuse everything else.
 *
 * - Files (Landlock): the rules' paths alone, each to read, to use as a device, or to keep things
 *   in. Nothing may be executed.
 * - System calls (seccomp, by libseccomp): no socket, no new program or process, no other process
 *   traced, read or signalled, no mount, namespace, key, BPF, performance event, io_uring,
 *   kernel module, no change of a file's mode or owner. They end with EPERM.
 * - No privilege ever comes back (no_new_privs), and root has no capability left.
 * - No core file, and no other process of the same user may look into its memory.
 *
 * What it has open stays open: the caller closes what the process is not to have.
 *
 * A kernel that lacks a part does without it; sandbox_lacks() says which. A part that the kernel
 * has and that fails is an error. Call it while the process has one thread: Landlock binds the
 * calling thread, and those that it starts later. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- what may still be opened: pure ------------------------------------------------------ */

enum sandbox_access {
    SANDBOX_READ, /* a file, or all in a folder */
    SANDBOX_USE,  /* a device file, or all in a folder: read, write, ioctl */
    SANDBOX_KEEP, /* a folder: make, read, write, rename and remove files and folders in it */
};

struct sandbox_rule {
    const char *path; /* a pattern of glob(7), or, where it is the caller's, a name as it is … */
    size_t length;    /* … of so many bytes */
    bool is_pattern;
    enum sandbox_access access;
};

enum { SANDBOX_RULES_MAX = 128 };

struct sandbox_rules {
    struct sandbox_rule list[SANDBOX_RULES_MAX];
    uint32_t n;
    bool overflows; /* there were more; sandbox_enter() refuses */
};

enum sandbox_work {
    SANDBOX_DEVICE, /* libraries and drivers, and what they look up; the backend's device files */
    SANDBOX_FILES,  /* bytes that come through open descriptors: no device, no driver */
};

struct sandbox_need {
    enum sandbox_work work;
    const char *backend; /* DEVICE: "cuda", "cpu" …; NULL: any of them */
    const char *folder;  /* to keep things in (a driver's compiled shaders); NULL: none */
    const char *const *files;
    uint32_t n_files;         /* more to read, NULLs left out: as they are, no patterns */
    char *const *environment; /* NULL, or where libraries and drivers are by LD_LIBRARY_PATH, … */
};

/* Points into `need` and what it points to. */
void sandbox_rules_make(const struct sandbox_need *need, struct sandbox_rules *out);

/* ---- what its environment is: pure ------------------------------------------------------- */

enum { SANDBOX_VARIABLES_MAX = 256, SANDBOX_FOLDERS = 6 };

/* The environment of a process that is started: of `from` what tells libraries and drivers how to
 * work, and nothing else; a user's folders are `folder`. Points to `from`'s texts and to itself. */
struct sandbox_environment {
    char *variables[SANDBOX_VARIABLES_MAX + 1]; /* ends with NULL */
    uint32_t n;
    char folders[SANDBOX_FOLDERS][4096 + 64];
};
void sandbox_environment_make(char *const *from, const char *folder,
                              struct sandbox_environment *out);

/* ---- doing it ----------------------------------------------------------------------------- */

struct sandbox_support {
    int landlock; /* version of its interface; 0: none */
    bool seccomp;
};
struct sandbox_support sandbox_support(void); /* of the running kernel */

/* What a process in a sandbox can still do here, because the kernel lacks a part: a list for
 * people; false: nothing is missing, and `text` is empty. Pure. */
bool sandbox_lacks(struct sandbox_support support, char *text, size_t size);

/* No way back. After an error the process has lost something already: it should end. */
enum error_code sandbox_enter(const struct sandbox_rules *rules, struct error *err);
