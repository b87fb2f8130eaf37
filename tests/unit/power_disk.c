#include "power_disk.h"

#include "base/random.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES = 256, NAMES = 16, NAME_BYTES = 64, SECTOR = 512 };

struct image {
    uint8_t *bytes;
    size_t size, room;
};

struct change { /* of a file's bytes, since its last sync */
    struct change *next;
    bool cuts;
    uint64_t at; /* cuts: the new size */
    size_t size;
    uint8_t bytes[];
};

struct power_file {
    bool used;
    struct image seen, durable;
    struct change *changes, **last;
};

struct folder {
    struct entry {
        char name[NAME_BYTES];
        struct power_file *file; /* NULL: no entry */
    } entries[NAMES];
};

struct renaming { /* also: created (no `from`), removed (no `to`) */
    char from[NAME_BYTES], to[NAME_BYTES];
    struct power_file *file;
};

static struct {
    uint64_t seed, draws, steps, lies, lose_at, fail_at;
    int failure;
    uint32_t torn_bytes, lie_percent;
    bool off, failed;
    struct power_file files[FILES];
    struct folder seen, durable;
    struct renaming renamings[FILES];
    uint32_t n_renamings;
} disk;

/* ---- what the disk is told to do ---- */

uint64_t power_draw(uint64_t below)
{
    return random_at(disk.seed, disk.draws++) % below;
}

void power_tear_sectors(uint32_t bytes)
{
    disk.torn_bytes = bytes;
}

void power_lie(uint32_t percent)
{
    disk.lie_percent = percent;
}

void power_lose_at(uint64_t step)
{
    disk.lose_at = step ? disk.steps + step : 0;
}

void power_fail_at(uint64_t step, int failure)
{
    disk.fail_at = step ? disk.steps + step : 0;
    disk.failure = failure;
    disk.failed = false;
}

bool power_failed(void)
{
    return disk.failed;
}

void power_off(void)
{
    disk.off = true;
}

bool power_is_off(void)
{
    return disk.off;
}

uint64_t power_steps(void)
{
    return disk.steps;
}

uint64_t power_lies(void)
{
    return disk.lies;
}

/* Before each step. EIO when there is no power; the plan's failure where it is planned. */
static int step(void)
{
    if (disk.off)
        return EIO;
    disk.steps++;
    if (disk.steps != disk.fail_at)
        return 0;
    disk.failed = true;
    return disk.failure;
}

/* After it: whether it was the last. */
static int stepped(int failure)
{
    if (disk.lose_at && disk.steps >= disk.lose_at)
        disk.off = true;
    return disk.off ? EIO : failure;
}

/* ---- bytes ---- */

static void image_resize(struct image *image, size_t size)
{
    if (size > image->room) {
        image->room = size * 2;
        image->bytes = realloc(image->bytes, image->room);
        assert(image->bytes);
    }
    if (size > image->size)
        memset(image->bytes + image->size, 0, size - image->size);
    image->size = size;
}

static void image_put(struct image *image, const uint8_t *bytes, size_t size, uint64_t at)
{
    if (size && at + size > image->size)
        image_resize(image, at + size);
    if (size)
        memcpy(image->bytes + at, bytes, size);
}

static void image_copy(struct image *to, const struct image *from)
{
    to->size = 0;
    image_put(to, from->bytes, from->size, 0);
}

static void image_apply(struct image *image, const struct change *change)
{
    if (change->cuts)
        image_resize(image, change->at);
    else
        image_put(image, change->bytes, change->size, change->at);
}

static void image_noise(struct image *image, uint64_t at, size_t size)
{
    const bool zeros = power_draw(2);
    uint8_t noise[4096];
    assert(size <= sizeof noise);
    for (size_t i = 0; i < size; i++)
        noise[i] = zeros ? 0 : (uint8_t)power_draw(256);
    image_put(image, noise, size, at);
}

static void note(struct power_file *file, bool cuts, const void *bytes, size_t size, uint64_t at)
{
    struct change *change = malloc(sizeof *change + size);
    assert(change);
    *change = (struct change){.cuts = cuts, .at = at, .size = size};
    if (size)
        memcpy(change->bytes, bytes, size);
    *file->last = change;
    file->last = &change->next;
    image_apply(&file->seen, change);
}

static void forget_changes(struct power_file *file)
{
    while (file->changes) {
        struct change *next = file->changes->next;
        free(file->changes);
        file->changes = next;
    }
    file->last = &file->changes;
}

int power_write(struct power_file *file, const void *bytes, size_t size, uint64_t at)
{
    if (disk.off)
        return EIO;
    const int failure = step();
    note(file, false, bytes, failure ? size / 2 : size, at);
    return stepped(failure);
}

size_t power_read(const struct power_file *file, void *bytes, size_t size, uint64_t at)
{
    const size_t there = at < file->seen.size ? file->seen.size - at : 0,
                 n = there < size ? there : size;
    if (n)
        memcpy(bytes, file->seen.bytes + at, n);
    return n;
}

int power_truncate(struct power_file *file, uint64_t size)
{
    const int failure = step();
    if (failure)
        return failure;
    note(file, true, NULL, 0, size);
    return stepped(0);
}

uint64_t power_size(const struct power_file *file)
{
    return file->seen.size;
}

static void make_durable(struct power_file *file)
{
    for (const struct change *change = file->changes; change; change = change->next)
        image_apply(&file->durable, change);
    forget_changes(file);
}

static bool lies(void)
{
    const bool does = disk.lie_percent && power_draw(100) < disk.lie_percent;
    disk.lies += does;
    return does;
}

/* ---- names ---- */

static struct entry *entry_of(struct folder *folder, const char *name)
{
    for (uint32_t i = 0; i < NAMES; i++)
        if (folder->entries[i].file && strcmp(folder->entries[i].name, name) == 0)
            return &folder->entries[i];
    return NULL;
}

static void put_entry(struct folder *folder, const char *name, struct power_file *file)
{
    struct entry *entry = entry_of(folder, name);
    for (uint32_t i = 0; i < NAMES && !entry; i++)
        entry = folder->entries[i].file ? NULL : &folder->entries[i];
    assert(entry && strlen(name) < NAME_BYTES);
    snprintf(entry->name, sizeof entry->name, "%s", name);
    entry->file = file;
}

static void folder_apply(struct folder *folder, const struct renaming *renaming)
{
    struct entry *from = renaming->from[0] ? entry_of(folder, renaming->from) : NULL;
    if (from)
        from->file = NULL;
    if (renaming->to[0])
        put_entry(folder, renaming->to, renaming->file);
}

static int rename_now(const char *from, const char *to, struct power_file *file)
{
    assert(disk.n_renamings < FILES);
    struct renaming *renaming = &disk.renamings[disk.n_renamings++];
    *renaming = (struct renaming){.file = file};
    snprintf(renaming->from, sizeof renaming->from, "%s", from);
    snprintf(renaming->to, sizeof renaming->to, "%s", to);
    folder_apply(&disk.seen, renaming);
    return stepped(0);
}

struct power_file *power_find(const char *name)
{
    const struct entry *entry = entry_of(&disk.seen, name);
    return entry ? entry->file : NULL;
}

int power_create(const char *name, struct power_file **out)
{
    const int failure = step();
    if (failure || power_find(name))
        return failure ? failure : EEXIST;
    struct power_file *file = disk.files;
    while (file->used)
        assert(++file < disk.files + FILES);
    *file = (struct power_file){.used = true, .last = &file->changes};
    *out = file;
    return rename_now("", name, file);
}

int power_unlink(const char *name)
{
    if (!disk.off && !power_find(name))
        return ENOENT;
    const int failure = step();
    return failure ? failure : rename_now(name, "", NULL);
}

int power_rename(const char *from, const char *to, bool replaces)
{
    struct power_file *file = power_find(from);
    if (!disk.off && !file)
        return ENOENT;
    if (!disk.off && !replaces && power_find(to))
        return EEXIST;
    const int failure = step();
    return failure ? failure : rename_now(from, to, file);
}

int power_sync_folder(void)
{
    const int failure = stepped(step());
    if (failure || lies())
        return failure;
    for (uint32_t i = 0; i < disk.n_renamings; i++)
        folder_apply(&disk.durable, &disk.renamings[i]);
    disk.n_renamings = 0;
    return 0;
}

/* ---- what is lost ---- */

struct loss { /* how bad it is */
    uint32_t kept_percent, noise_percent;
    bool shuffles;
};

static bool chance(uint32_t percent)
{
    return power_draw(100) < percent;
}

/* A write reaches the platter by sectors. */
static void tear(struct image *image, const struct change *change, const struct loss *loss)
{
    const uint64_t end = change->at + change->size;
    for (uint64_t at = change->at, next; at < end; at = next) {
        next = (at / SECTOR + 1) * SECTOR < end ? (at / SECTOR + 1) * SECTOR : end;
        if (chance(loss->kept_percent))
            image_put(image, change->bytes + (at - change->at), next - at, at);
        else if (chance(loss->noise_percent))
            image_noise(image, at, next - at);
    }
    for (int i = 0; i < 2 && disk.torn_bytes && change->size; i++) {
        const uint64_t edge = i ? end : change->at,
                       sector = edge / disk.torn_bytes * disk.torn_bytes;
        if (edge == sector || !chance(loss->noise_percent))
            continue;
        const uint64_t size = sector < image->size ? image->size - sector : 0;
        image_noise(image, sector, size < disk.torn_bytes ? size : disk.torn_bytes);
    }
}

static void lose_changes(struct power_file *file, const struct loss *loss)
{
    struct change *order[4096];
    uint32_t n = 0;
    for (struct change *change = file->changes; change && n < 4096; change = change->next)
        order[n++] = change;
    for (uint32_t i = n; loss->shuffles && i > 1; i--) {
        const uint32_t other = (uint32_t)power_draw(i);
        struct change *kept = order[i - 1];
        order[i - 1] = order[other];
        order[other] = kept;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t what = power_draw(3);
        if (what == 0 && chance(loss->kept_percent))
            image_apply(&file->durable, order[i]);
        else if (what == 1 && !order[i]->cuts)
            tear(&file->durable, order[i], loss);
        else if (what == 1 && chance(loss->kept_percent))
            image_resize(&file->durable, order[i]->at);
    }
    forget_changes(file);
}

int power_sync(struct power_file *file)
{
    const int problem = step(), failure = stepped(problem);
    if (problem && !disk.off)
        lose_changes(file, &(struct loss){.kept_percent = 50});
    if (!failure && !lies())
        make_durable(file);
    return failure;
}

static bool has_name(const struct power_file *file)
{
    for (uint32_t i = 0; i < NAMES; i++)
        if (disk.durable.entries[i].file == file)
            return true;
    return false;
}

static void free_file(struct power_file *file)
{
    forget_changes(file);
    free(file->seen.bytes);
    free(file->durable.bytes);
    *file = (struct power_file){0};
}

void power_again(void)
{
    disk.off = disk.failed = false;
    disk.lose_at = disk.fail_at = 0;
}

void power_on(void)
{
    static const uint32_t kept[] = {0, 10, 50, 90, 100}, noise[] = {0, 0, 10, 60};
    const struct loss loss = {kept[power_draw(5)], noise[power_draw(4)], power_draw(2)};
    for (uint32_t i = 0; i < disk.n_renamings; i++)
        if (chance(loss.kept_percent))
            folder_apply(&disk.durable, &disk.renamings[i]);
    disk.n_renamings = 0;
    disk.seen = disk.durable;
    for (struct power_file *file = disk.files; file < disk.files + FILES; file++) {
        if (file->used && !has_name(file)) {
            free_file(file);
        } else if (file->used) {
            lose_changes(file, &loss);
            image_copy(&file->seen, &file->durable);
        }
    }
    power_again();
}

void power_reset(uint64_t seed)
{
    for (struct power_file *file = disk.files; file < disk.files + FILES; file++)
        if (file->used)
            free_file(file);
    memset(&disk, 0, sizeof disk);
    disk.seed = seed;
}
