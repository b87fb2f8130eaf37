#include "hub/pull_disk.h"

#include "base/durable_file.h"
#include "base/fnv.h"
#include "base/large_pages.h"
#include "base/log.h"
#include "base/mem.h"
#include "hub/boot_id.h"
#include "hub/shelf.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PULL_READ_BYTES = 256 * 1024, PULL_LOCK_MS = 3000, PULL_LOCK_STEP_MS = 20 };

struct pull_live {
    char boot[BOOT_ID_BYTES]; /* of the kernel that holds the pages */
    uint64_t file;            /* which file: pull_live_id() */
    uint64_t received;
    uint64_t have[PULL_PIECES];
};

/* ---- opening --------------------------------------------------------------------------------- */

static enum error_code pull_disk_fail(const struct pull_disk *disk, const char *what, int problem,
                                      struct error *err)
{
    return error_set(err, ERROR_IO, "%s: %s: %s%s", disk->path, what, strerror(problem),
                     problem == ENOSPC || problem == EDQUOT
                         ? "; make room and pull again, it goes on where it was"
                         : "");
}

static bool pull_disk_is_current(int fd, const char *path)
{
    struct stat here, there;
    return fstat(fd, &here) == 0 && stat(path, &there) == 0 && here.st_ino == there.st_ino &&
           here.st_dev == there.st_dev;
}

/* A pull that was told to stop has it for a moment longer. */
static int pull_disk_lock(int fd)
{
    const struct timespec step = {0, PULL_LOCK_STEP_MS * 1000000L};
    int problem = flock(fd, LOCK_EX | LOCK_NB);
    for (int ms = 0; problem && errno == EWOULDBLOCK && ms < PULL_LOCK_MS;
         ms += PULL_LOCK_STEP_MS) {
        nanosleep(&step, NULL);
        problem = flock(fd, LOCK_EX | LOCK_NB);
    }
    return problem;
}

enum error_code pull_disk_open(struct pull_disk *disk, const char *path, struct error *err)
{
    char part[PATH_MAX + 8];
    *disk = (struct pull_disk){.part = -1};
    if (snprintf(disk->path, PATH_MAX, "%s", path) >= PATH_MAX - 8)
        return error_set(err, ERROR_INVALID, "the path of the pulled model is too long");
    snprintf(part, sizeof part, "%s" PULLED_PART, path);
    enum error_code code = durable_make_folder_of(part, err);
    while (!code) {
        disk->part = open(part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (disk->part < 0)
            return pull_disk_fail(disk, "opening its part", errno, err);
        if (pull_disk_lock(disk->part)) {
            code = errno == EWOULDBLOCK
                       ? error_set(err, ERROR_BUSY, "%s is being pulled by another process", path)
                       : pull_disk_fail(disk, "locking its part", errno, err);
            break;
        }
        if (pull_disk_is_current(disk->part, part)) {
            disk->is_open = true;
            return ERROR_NONE;
        }
        close(disk->part); /* it was finished or dropped before the lock was ours */
    }
    if (disk->part >= 0)
        close(disk->part);
    disk->part = -1;
    return code;
}

void pull_disk_close(struct pull_disk *disk)
{
    if (!disk->is_open)
        return;
    if (disk->live)
        munmap(disk->live, sizeof *disk->live);
    close(disk->part);
    *disk = (struct pull_disk){.part = -1};
}

static void pull_disk_unlink(const struct pull_disk *disk, const char *extension)
{
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s%s", disk->path, extension);
    if (unlink(path) && errno != ENOENT)
        log_line(LOG_WARN, "hub", "removing %s: %s", path, strerror(errno));
}

/* ---- what kill -9 leaves --------------------------------------------------------------------- */

static uint64_t pull_live_id(const struct pull_disk *disk, const struct pull_state *state)
{
    struct stat part = {0};
    fstat(disk->part, &part);
    uint64_t id = fnv(FNV_BASIS, &part.st_ino, sizeof part.st_ino);
    id = fnv(id, &state->size, sizeof state->size);
    return fnv_text(fnv_text(id, state->etag), state->sha256);
}

/* Its bytes are written before it is mapped: a full disk must not be found by a store. */
static struct pull_live *pull_live_map(const struct pull_disk *disk)
{
    static const struct pull_live empty;
    char path[PATH_MAX + 8];
    struct stat file;
    snprintf(path, sizeof path, "%s" PULLED_LIVE, disk->path);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return NULL;
    void *map = MAP_FAILED;
    if (fstat(fd, &file) == 0 &&
        (file.st_size == (off_t)sizeof empty ||
         (ftruncate(fd, 0) == 0 && pwrite_all(fd, &empty, sizeof empty, 0) == 0)))
        map = mmap(NULL, sizeof empty, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return map == MAP_FAILED ? NULL : map;
}

/* True: it says more than FILE.pull. */
static bool pull_live_holds(const struct pull_disk *disk, const struct pull_state *state)
{
    char boot[BOOT_ID_BYTES];
    const struct pull_live *live = disk->live;
    boot_id(boot);
    if (!live || !boot[0] || memcmp(live->boot, boot, sizeof boot) != 0 ||
        live->file != pull_live_id(disk, state))
        return false;
    for (uint32_t i = 0; i < state->n_pieces; i++) {
        if (live->have[i] > pull_piece_size(state, i))
            return false;
    }
    return true;
}

static void pull_live_begin(struct pull_disk *disk, const struct pull_state *state,
                            uint64_t received)
{
    if (!disk->live)
        return;
    disk->live->file = 0; /* not valid while it changes */
    memcpy(disk->live->have, state->have, sizeof state->have);
    disk->live->received = received;
    boot_id(disk->live->boot);
    disk->live->file = pull_live_id(disk, state);
}

/* ---- beginning ------------------------------------------------------------------------------- */

static bool pull_is_same_file(const struct pull_state *old, const struct pull_state *now)
{
    if (old->size != now->size || strcmp(old->sha256, now->sha256) != 0)
        return false;
    /* With a hash the bytes are told by it; without, by the server's word for this version. */
    return now->sha256[0] ||
           (strcmp(old->url, now->url) == 0 && now->etag[0] && strcmp(old->etag, now->etag) == 0);
}

static void pull_disk_adopt(struct pull_disk *disk, struct pull_state *state, bool *resumed)
{
    char path[PATH_MAX + 8];
    struct buffer bytes = {0};
    struct stat part;
    struct error err;
    struct pull_state *old = mem_new(sizeof *old);
    snprintf(path, sizeof path, "%s" PULLED_STATE, disk->path);
    if (old && fstat(disk->part, &part) == 0 && part.st_size == (off_t)state->size &&
        !durable_read(path, PULL_STATE_BYTES, 022, &bytes, &err) &&
        !pull_state_read(bytes.data ? bytes.data : "", bytes.size, old, &err) &&
        pull_is_same_file(old, state)) {
        memcpy(state->have, old->have, sizeof old->have);
        memcpy(state->sums, old->sums, sizeof old->sums);
        memcpy(state->summed, old->summed, sizeof old->summed);
        memcpy(state->etag, old->etag, sizeof old->etag);
        *resumed = true;
    }
    buffer_deinit(&bytes);
    mem_free(old);
}

/* Goes on with a piece's sum by what is on the disk. */
static enum error_code pull_disk_sum(const struct pull_disk *disk, struct pull_state *state,
                                     uint32_t piece, uint8_t *room, struct error *err)
{
    if (state->summed[piece] > state->have[piece])
        state->summed[piece] = 0;
    if (!state->summed[piece])
        state->sums[piece] = FNV_BASIS;
    while (state->summed[piece] < state->have[piece]) {
        const uint64_t left = state->have[piece] - state->summed[piece];
        const size_t n = left < PULL_READ_BYTES ? (size_t)left : PULL_READ_BYTES;
        const int problem =
            pread_all(disk->part, room, n, piece * state->piece + state->summed[piece]);
        if (problem)
            return pull_disk_fail(disk, "reading what is here", problem, err);
        state->sums[piece] = fnv(state->sums[piece], room, n);
        state->summed[piece] += n;
    }
    return ERROR_NONE;
}

static enum error_code pull_disk_sum_all(const struct pull_disk *disk, struct pull_state *state,
                                         struct error *err)
{
    enum error_code code = ERROR_NONE;
    uint8_t *room = mem_new(PULL_READ_BYTES);
    if (!room)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to pull a model");
    for (uint32_t i = 0; i < state->n_pieces && !code; i++)
        code = pull_disk_sum(disk, state, i, room, err);
    mem_free(room);
    return code;
}

enum error_code pull_disk_begin(struct pull_disk *disk, struct pull_state *state, bool *resumed,
                                struct error *err)
{
    assert(disk->is_open && state->n_pieces && pull_state_done(state) == 0);
    uint64_t received = 0;
    *resumed = false;
    pull_disk_adopt(disk, state, resumed);
    disk->live = disk->live ? disk->live : pull_live_map(disk);
    if (*resumed && pull_live_holds(disk, state)) {
        memcpy(state->have, disk->live->have, sizeof state->have);
        received = disk->live->received;
    }
    if (!*resumed) /* before the part is emptied: it may be of a part that was removed */
        pull_disk_unlink(disk, PULLED_STATE);
    if (!*resumed && (ftruncate(disk->part, 0) || ftruncate(disk->part, (off_t)state->size)))
        return pull_disk_fail(disk, "making room", errno, err);
    const enum error_code code = pull_disk_sum_all(disk, state, err);
    if (code)
        return code;
    pull_live_begin(disk, state, received);
    return pull_disk_sync(disk, state, err);
}

/* ---- while it comes -------------------------------------------------------------------------- */

enum error_code pull_disk_write(struct pull_disk *disk, struct pull_state *state, uint32_t piece,
                                const void *bytes, size_t size, struct error *err)
{
    assert(size <= pull_piece_size(state, piece) - state->have[piece]);
    const uint64_t at = piece * state->piece + state->have[piece];
    large_pages_expect(disk->part, at, size);
    const int problem = pwrite_all(disk->part, bytes, size, at);
    if (problem)
        return pull_disk_fail(disk, "writing", problem, err);
    if (state->summed[piece] == state->have[piece]) {
        const uint64_t before = state->have[piece] ? state->sums[piece] : FNV_BASIS;
        state->sums[piece] = fnv(before, bytes, size);
        state->summed[piece] += size;
    }
    state->have[piece] += size;
    disk->unsynced += size;
    if (disk->live) { /* after the bytes, never before */
        __atomic_store_n(&disk->live->have[piece], state->have[piece], __ATOMIC_RELEASE);
        disk->live->received += size;
    }
    return ERROR_NONE;
}

void pull_disk_forget(struct pull_disk *disk, struct pull_state *state, uint32_t piece)
{
    pull_piece_forget(state, piece);
    if (disk->live)
        disk->live->have[piece] = 0;
}

uint64_t pull_disk_received(const struct pull_disk *disk)
{
    return disk->live ? disk->live->received : 0;
}

enum error_code pull_disk_sync(struct pull_disk *disk, const struct pull_state *state,
                               struct error *err)
{
    char path[PATH_MAX + 8];
    struct buffer text = {0};
    if (fdatasync(disk->part))
        return pull_disk_fail(disk, "syncing", errno, err);
    disk->unsynced = 0;
    snprintf(path, sizeof path, "%s" PULLED_STATE, disk->path);
    pull_state_write(state, &text);
    const enum error_code code =
        text.failed ? error_set(err, ERROR_NO_MEMORY, "not enough memory to pull a model")
                    : durable_replace(path, text.data, text.size, err);
    buffer_deinit(&text);
    return code;
}

/* ---- the end --------------------------------------------------------------------------------- */

enum error_code pull_disk_find_damage(struct pull_disk *disk, struct pull_state *state, uint32_t *n,
                                      struct error *err)
{
    *n = 0;
    enum error_code code = ERROR_NONE;
    uint8_t *room = mem_new(PULL_READ_BYTES);
    if (!room)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to pull a model");
    for (uint32_t i = 0; i < state->n_pieces && !code; i++) {
        const uint64_t came = state->sums[i];
        const bool is_known = state->summed[i] == state->have[i];
        if (!state->have[i])
            continue;
        state->summed[i] = 0;
        code = pull_disk_sum(disk, state, i, room, err);
        if (code || (is_known && state->sums[i] == came))
            continue;
        pull_disk_forget(disk, state, i);
        ++*n;
    }
    mem_free(room);
    return code;
}

enum error_code pull_disk_finish(struct pull_disk *disk, struct error *err)
{
    char part[PATH_MAX + 8];
    snprintf(part, sizeof part, "%s" PULLED_PART, disk->path);
    if (fsync(disk->part) || rename(part, disk->path))
        return pull_disk_fail(disk, "giving it its name", errno, err);
    const int problem = durable_sync_folder_of(disk->path);
    if (problem)
        return pull_disk_fail(disk, "syncing its folder", problem, err);
    pull_disk_unlink(disk, PULLED_STATE);
    pull_disk_unlink(disk, PULLED_LIVE);
    return ERROR_NONE;
}

void pull_disk_discard(struct pull_disk *disk)
{
    pull_disk_unlink(disk, PULLED_STATE);
    pull_disk_unlink(disk, PULLED_LIVE);
    pull_disk_unlink(disk, PULLED_PART);
}

void pull_disk_tidy(const char *path)
{
    struct pull_disk disk = {0};
    char part[PATH_MAX + 8];
    snprintf(disk.path, PATH_MAX, "%s", path);
    snprintf(part, sizeof part, "%s" PULLED_PART, path);
    if (access(part, F_OK) == 0)
        return;
    pull_disk_unlink(&disk, PULLED_STATE);
    pull_disk_unlink(&disk, PULLED_LIVE);
}
