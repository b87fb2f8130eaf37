#include "model/gguf_trial.h"

#include "base/clock.h"
#include "base/limits.h"
#include "model/gguf_file.h"
#include "model/model.h"
#include "model/tokenizer.h"
#include "sandbox/reader.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TRIALS_KEPT = 64, TRIAL_LOOK_NS = 1000000 };

static const char *trial_program;
static uint32_t trial_limit_ms;

/* ---- the process ----------------------------------------------------------------------------- */

/* All that a node reads of a file before its weights. */
static void trial_read(void)
{
    struct gguf_file *file;
    struct model *model;
    struct tokenizer *tokenizer;
    if (gguf_file_open_part(READER_DESCRIPTOR, "a model file", &file, NULL))
        return;
    if (!tokenizer_open(file, &tokenizer, NULL))
        tokenizer_close(tokenizer);
    if (!model_open_file(file, &model, NULL))
        model_close(model);
}

void gguf_trial_main(int argc, char **argv)
{
    struct error err = {0};
    if (!reader_is_asked(argc, argv, GGUF_TRIAL_ARGUMENT))
        return;
    if (!reader_enter_sandbox(LIMIT_TRIAL_BYTES, &err))
        trial_read();
    _exit(err.code ? EXIT_FAILURE : EXIT_SUCCESS);
}

/* ---- files that have been tried -------------------------------------------------------------- */

struct trial_key {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec modified, changed;
};

static pthread_mutex_t trial_lock = PTHREAD_MUTEX_INITIALIZER;
static struct trial_key trial_kept[TRIALS_KEPT];
static uint32_t trial_next;

static struct trial_key trial_key_of(const struct stat *info)
{
    struct trial_key key;
    memset(&key, 0, sizeof key); /* compared as bytes */
    key.device = info->st_dev;
    key.inode = info->st_ino;
    key.size = info->st_size;
    key.modified = info->st_mtim;
    key.changed = info->st_ctim;
    return key;
}

static bool trial_was_made(const struct trial_key *key)
{
    bool found = false;
    pthread_mutex_lock(&trial_lock);
    for (uint32_t i = 0; i < TRIALS_KEPT && !found; i++)
        found = memcmp(&trial_kept[i], key, sizeof *key) == 0;
    pthread_mutex_unlock(&trial_lock);
    return found;
}

static void trial_keep(const struct trial_key *key)
{
    pthread_mutex_lock(&trial_lock);
    trial_kept[trial_next++ % TRIALS_KEPT] = *key;
    pthread_mutex_unlock(&trial_lock);
}

/* ---- the node's side ------------------------------------------------------------------------- */

/* False: it took too long, and was ended. */
static bool trial_wait(pid_t pid, int *status)
{
    const uint64_t until_ns = clock_now_ns() + (uint64_t)trial_limit_ms * 1000000;
    const struct timespec look = {.tv_nsec = TRIAL_LOOK_NS};
    for (pid_t ended = 0; ended != pid;) {
        ended = waitpid(pid, status, WNOHANG);
        if (ended < 0 && errno != EINTR)
            return false;
        if (ended == pid)
            return true;
        if (clock_now_ns() >= until_ns)
            break;
        nanosleep(&look, NULL);
    }
    reader_end(pid);
    return false;
}

void gguf_trial_require(const char *program, uint32_t limit_ms)
{
    trial_program = program;
    trial_limit_ms = limit_ms ? limit_ms : LIMIT_TRIAL_MS;
}

enum error_code gguf_trial_run(int descriptor, struct error *err)
{
    struct stat info;
    pid_t pid;
    int status = 0;
    if (!trial_program || fstat(descriptor, &info) || !S_ISREG(info.st_mode))
        return ERROR_NONE; /* what is no file is refused by who opens it */
    const struct trial_key key = trial_key_of(&info);
    if (trial_was_made(&key))
        return ERROR_NONE;
    const int failure = reader_start(trial_program, GGUF_TRIAL_ARGUMENT, descriptor, false, &pid);
    if (failure)
        return error_set(err, ERROR_IO, "a process to try the file in cannot be started: %s",
                         strerror(failure));
    if (!trial_wait(pid, &status))
        return error_set(err, ERROR_INVALID,
                         "reading its header took longer than %u s in a process of its own; the "
                         "file is damaged, or made to do harm",
                         trial_limit_ms / 1000);
    if (WIFSIGNALED(status))
        return error_set(err, ERROR_INVALID,
                         "reading its header ended a process of its own by signal %d; the file is "
                         "damaged, or made to do harm. Please report it",
                         WTERMSIG(status));
    if (WEXITSTATUS(status) != EXIT_SUCCESS)
        return error_set(err, ERROR_IO, "the sandbox to try the file in cannot be entered");
    trial_keep(&key);
    return ERROR_NONE;
}
