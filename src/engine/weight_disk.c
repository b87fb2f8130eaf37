#include "engine/weight_disk.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/this_process.h"
#include "gpu/host.h"
#include "model/gguf_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MEASURE_BYTES = 256 << 20, MEASURE_NS = 200 * 1000 * 1000 };

/* ---- opening -------------------------------------------------------------------------- */

/* Another open file of the same: flags belong to it, and the mapped one keeps its own. */
static int open_direct(int descriptor)
{
#ifdef O_DIRECT
    char path[DESCRIPTOR_PATH_BYTES];
    descriptor_path(path, descriptor);
    return open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
#else
    (void)descriptor;
    return -1;
#endif
}

static void close_direct(struct weight_disk *disk)
{
    for (uint32_t i = 0; disk->direct && i < gguf_file_part_count(disk->file); i++) {
        if (disk->direct[i] >= 0)
            close(disk->direct[i]);
    }
    mem_free(disk->direct);
    disk->direct = NULL;
}

static void open_all_direct(struct weight_disk *disk)
{
    const uint32_t n = gguf_file_part_count(disk->file);
    bool ok = true;
    disk->direct = mem_new_array(n, sizeof *disk->direct);
    for (uint32_t i = 0; disk->direct && i < n; i++) {
        disk->direct[i] = open_direct(gguf_file_part_descriptor(disk->file, i));
        ok = ok && disk->direct[i] >= 0;
    }
    if (!ok)
        close_direct(disk);
}

/* False: errno says why. */
static bool count_blocks(const struct gguf_file *file, int64_t *out)
{
    *out = 0;
    for (uint32_t i = 0; i < gguf_file_part_count(file); i++) {
        struct stat facts;
        if (fstat(gguf_file_part_descriptor(file, i), &facts) != 0)
            return false;
        *out += facts.st_blocks;
    }
    return true;
}

enum error_code weight_disk_open(struct weight_disk *disk, const struct gguf_file *file,
                                 struct error *err)
{
    *disk = (struct weight_disk){.file = file};
    if (!gguf_file_part_count(file) || !count_blocks(file, &disk->n_blocks))
        return error_set(err, ERROR_UNSUPPORTED,
                         "%s is no file on a disk that weights could be streamed from",
                         gguf_file_path(file));
    open_all_direct(disk);
    disk->is_direct = disk->direct;
    disk->drops_behind = gguf_file_size(file) > host_memory_read().free_bytes;
    return ERROR_NONE;
}

void weight_disk_close(struct weight_disk *disk)
{
    close_direct(disk);
    *disk = (struct weight_disk){0};
}

uint64_t weight_disk_bps(const struct weight_disk *disk)
{
    return disk->is_direct ? disk->direct_bps : disk->cached_bps;
}

/* ---- reading -------------------------------------------------------------------------- */

static void drop_pages(int descriptor, uint64_t offset, uint64_t size)
{
#ifdef POSIX_FADV_DONTNEED
    posix_fadvise(descriptor, (off_t)offset, (off_t)size, POSIX_FADV_DONTNEED);
#else
    (void)descriptor, (void)offset, (void)size;
#endif
}

static enum error_code disk_failed(const struct weight_disk *disk, uint64_t offset,
                                   const char *reason, struct error *err)
{
    return error_set(err, ERROR_IO, "%s: reading weights at byte %llu failed: %s",
                     gguf_file_path(disk->file), (unsigned long long)offset, reason);
}

/* A hole reads as zeros. Files may have holes from the beginning, for weights that are zeros; but
 * none that is being used loses blocks. */
static enum error_code check_blocks(const struct weight_disk *disk, uint64_t offset,
                                    struct error *err)
{
    int64_t n_blocks;
    if (!count_blocks(disk->file, &n_blocks))
        return disk_failed(disk, offset, strerror(errno), err);
    if (n_blocks < disk->n_blocks)
        return disk_failed(disk, offset, "the file has lost blocks since it was opened", err);
    return ERROR_NONE;
}

/* Bytes between two files are zeros up to the next that could be a file's. */
static uint64_t skip_gap(char *out, uint64_t offset, uint64_t size)
{
    const uint64_t gap = WEIGHT_DISK_ALIGN - offset % WEIGHT_DISK_ALIGN;
    const uint64_t n = gap < size ? gap : size;
    memset(out, 0, n);
    return n;
}

enum error_code weight_disk_read(const struct weight_disk *disk, void *out, uint64_t offset,
                                 uint64_t size, uint64_t needed, struct error *err)
{
    assert(offset % WEIGHT_DISK_ALIGN == 0 && size % WEIGHT_DISK_ALIGN == 0 && needed <= size);
    for (uint64_t done = 0; done < needed;) {
        char *to = (char *)out + done;
        uint32_t part;
        uint64_t at;
        if (!gguf_file_place(disk->file, offset + done, &part, &at)) {
            done += skip_gap(to, offset + done, size - done);
            continue;
        }
        const int cached = gguf_file_part_descriptor(disk->file, part);
        const int descriptor = disk->is_direct ? disk->direct[part] : cached;
        const ssize_t n = pread(descriptor, to, (size_t)(size - done), (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return disk_failed(disk, offset + done, strerror(errno), err);
        if (n == 0)
            return disk_failed(disk, offset + done, "the file was cut", err);
        if (!disk->is_direct && disk->drops_behind)
            drop_pages(cached, at, (uint64_t)n);
        done += (uint64_t)n;
        if (disk->is_direct && n % WEIGHT_DISK_ALIGN && done < needed &&
            gguf_file_place(disk->file, offset + done, &part, &at))
            return disk_failed(disk, offset + done, "the file was cut", err);
    }
    return check_blocks(disk, offset, err);
}

/* ---- measuring ------------------------------------------------------------------------ */

struct disk_trial {
    const struct weight_disk *disk;
    uint64_t offset, size;
    uint64_t until_ns;
    atomic_uint_fast64_t next, n_read;
    atomic_int code;
};

static void *trial_run(void *arg)
{
    struct disk_trial *trial = arg;
    char *memory = mem_new(WEIGHT_DISK_CHUNK + WEIGHT_DISK_ALIGN);
    char *chunk =
        memory ? memory + (WEIGHT_DISK_ALIGN - (uintptr_t)memory % WEIGHT_DISK_ALIGN) : NULL;
    if (!memory)
        atomic_store(&trial->code, ERROR_NO_MEMORY);
    while (chunk && !atomic_load(&trial->code) && clock_now_ns() < trial->until_ns) {
        const uint64_t at = atomic_fetch_add(&trial->next, WEIGHT_DISK_CHUNK);
        if (at + WEIGHT_DISK_CHUNK > trial->size)
            break;
        struct error err = {0};
        const enum error_code code = weight_disk_read(trial->disk, chunk, trial->offset + at,
                                                      WEIGHT_DISK_CHUNK, WEIGHT_DISK_CHUNK, &err);
        if (code)
            atomic_store(&trial->code, (int)code);
        atomic_fetch_add(&trial->n_read, code ? 0 : WEIGHT_DISK_CHUNK);
    }
    mem_free(memory);
    return NULL;
}

/* Bytes per second; 0: could not be read so. */
static uint64_t trial_bps(const struct weight_disk *disk, uint64_t offset, uint64_t size)
{
    const uint64_t start_ns = clock_now_ns();
    struct disk_trial trial = {
        .disk = disk, .offset = offset, .size = size, .until_ns = start_ns + MEASURE_NS};
    pthread_t threads[WEIGHT_DISK_THREADS];
    uint32_t n = 0;
    while (n + 1 < WEIGHT_DISK_THREADS && pthread_create(&threads[n], NULL, trial_run, &trial) == 0)
        n++;
    trial_run(&trial);
    for (uint32_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    const uint64_t took_ns = clock_now_ns() - start_ns;
    return atomic_load(&trial.code) || !took_ns
               ? 0
               : (uint64_t)((double)atomic_load(&trial.n_read) * 1e9 / (double)took_ns);
}

enum error_code weight_disk_measure(struct weight_disk *disk, uint64_t offset, struct error *err)
{
    offset = offset / WEIGHT_DISK_ALIGN * WEIGHT_DISK_ALIGN;
    const uint64_t left = gguf_file_size(disk->file) - offset;
    const uint64_t size = left < MEASURE_BYTES ? left : MEASURE_BYTES;
    if (size < WEIGHT_DISK_CHUNK)
        return ERROR_NONE;
    uint32_t part;
    uint64_t at;
    if (disk->drops_behind && gguf_file_place(disk->file, offset, &part, &at))
        drop_pages(gguf_file_part_descriptor(disk->file, part), at, size);
    struct weight_disk way = *disk;
    way.is_direct = false;
    disk->cached_bps = trial_bps(&way, offset, size);
    way.is_direct = true;
    disk->direct_bps = disk->direct ? trial_bps(&way, offset, size) : 0;
    disk->is_direct = disk->direct_bps > disk->cached_bps;
    if (!weight_disk_bps(disk))
        return disk_failed(disk, offset, "neither way of reading it works", err);
    return ERROR_NONE;
}
