/* What this machine's devices did when they were last verified and calibrated: one JSON file.
 *
 * The file is a cache of measurements. It is read as if a stranger had written it: a file that is
 * not ours alone (another owner, writable by others, a link, not a regular file), too large, of
 * another version, cut off, or with any field missing, doubled, unknown, of a wrong type or out of
 * range, is not used at all. Then there is no registry, a log line says why, and the next write
 * makes a new one and keeps what was there as FILE.unused. Nothing here is ever fatal to the
 * caller.
 *
 * Writing: under an advisory lock (flock on FILE.lock, at most LIMIT_REGISTRY_LOCK_MS of waiting)
 * the file is read again, the changes are merged, and a temporary file in the same folder is synced
 * and renamed over it; so two processes lose nothing of each other, and a crash leaves the old file
 * or the new one.
 *
 * An entry is keyed by all that a measurement depends on. When any of it changes the entry is no
 * longer found: the device is as good as new. Entries beyond LIMIT_REGISTRY_ENTRIES go, the oldest
 * first.
 *
 * Threading: none; a struct registry belongs to one thread. */
#pragma once

#include "gpu/gpu.h"

/* Of a change in what calibration measures or how: earlier figures do not compare, and are not
 * used. */
enum { REGISTRY_CALIBRATION_VERSION = 1 };

struct registry_key {
    char backend[16];
    char device[160]; /* PCI id, else name and place in the backend's list; the CPU: name,
                         instructions, threads */
    char driver[96];  /* version; where the driver does not tell, what changes with it */
    char ggml[64];
};

/* The key of a device that is not open yet. */
struct registry_key registry_key_of(const struct device_info *info, uint32_t index,
                                    uint32_t n_cpu_threads);

enum registry_result {
    REGISTRY_UNKNOWN, /* never verified */
    REGISTRY_PASSED,
    REGISTRY_FAILED,  /* lied or refused: verified anew at every start */
    REGISTRY_CRASHED, /* took a process with it, or … */
    REGISTRY_HUNG,    /* … a time limit: not tried again on its own */
};

struct registry_entry {
    struct registry_key key;
    enum registry_result result;
    char reason[256]; /* "" when it passed */
    uint64_t verified_unix_s;
    bool calibrated;
    struct device_calibration calibration;
};

/* A zeroed registry is empty. */
struct registry {
    struct registry_entry *entries;
    uint32_t count;
};

void registry_deinit(struct registry *registry);
const struct registry_entry *registry_find(const struct registry *registry,
                                           const struct registry_key *key);

/* May what was verified at `entry`'s time still be believed at `now`? Not after
 * LIMIT_REGISTRY_AGE_S, and not when it lies in the future. */
bool registry_is_fresh(const struct registry_entry *entry, uint64_t now_unix_s);

/* Puts the change over the entry of the same key, or beside the others: a result other than
 * REGISTRY_UNKNOWN replaces the result, a calibration the calibration. */
enum error_code registry_merge(struct registry *registry, const struct registry_entry *change,
                               struct error *err);

/* ---- the text (registry_json.c) -------------------------------------------------------- */

/* On failure the registry is empty and ERROR_INVALID says what is wrong. */
enum error_code registry_parse(const char *json, size_t size, struct registry *out,
                               struct error *err);

/* The text, with a newline at the end; *json is freed with mem_free(). */
enum error_code registry_write_json(const struct registry *registry, char **json, size_t *size,
                                    struct error *err);

/* ---- the file (registry_file.c) -------------------------------------------------------- */

/* Empty when there is no file, or none that can be trusted (which is logged). NULL or "": empty. */
void registry_load(const char *path, struct registry *out);

/* Merges the changes into the file. Makes its folder. */
enum error_code registry_update(const char *path, const struct registry_entry *changes,
                                uint32_t count, struct error *err);
