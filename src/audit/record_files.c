/* The folder of a record: its files and its head. */
#include "audit/record_impl.h"

#include "audit/lines.h"
#include "base/durable_file.h"
#include "base/limits.h"
#include "base/mem.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NAME_DIGITS = 20, HEAD_BYTES_MAX = 4096 };

/* ---- names ---- */

static void record_head_path(const char *folder, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/head", folder);
}

void record_file_path(const char *folder, uint64_t first, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/%0*" PRIu64 ".jsonl", folder, NAME_DIGITS, first);
}

static bool record_file_name(const char *name, uint64_t *first)
{
    if (strspn(name, "0123456789") != NAME_DIGITS || strcmp(name + NAME_DIGITS, ".jsonl") != 0)
        return false;
    errno = 0;
    *first = strtoull(name, NULL, 10);
    return !errno && *first;
}

static int compare_files(const void *a, const void *b)
{
    const uint64_t x = ((const struct record_file *)a)->first;
    const uint64_t y = ((const struct record_file *)b)->first;
    return (x > y) - (x < y);
}

static enum error_code record_failed(const char *path, struct error *err)
{
    return error_set(err, ERROR_IO, "the audit record: %s: %s", path, strerror(errno));
}

enum error_code record_files_list(const char *path, struct record_file *files, uint32_t *n,
                                  struct error *err)
{
    DIR *folder = opendir(path);
    *n = 0;
    if (!folder)
        return errno == ENOENT
                   ? error_set(err, ERROR_NOT_FOUND, "there is no audit record in %s", path)
                   : record_failed(path, err);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        struct stat facts;
        uint64_t first;
        if (!record_file_name(entry->d_name, &first) || *n == RECORD_FILES_MAX ||
            fstatat(dirfd(folder), entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) ||
            !S_ISREG(facts.st_mode))
            continue;
        files[(*n)++] =
            (struct record_file){first, (uint64_t)facts.st_size, (uint64_t)facts.st_mtime * 1000};
    }
    closedir(folder);
    qsort(files, *n, sizeof *files, compare_files);
    return ERROR_NONE;
}

/* ---- opening ---- */

static enum error_code record_head_load(struct record_folder *folder, bool *damaged,
                                        struct error *err)
{
    char path[PATH_MAX], node[NODE_ID_TEXT], own[NODE_ID_TEXT];
    struct buffer text = {0};
    record_head_path(folder->path, path);
    enum error_code code = durable_read(path, HEAD_BYTES_MAX, 077, &text, err);
    folder->has_head = false;
    if (code == ERROR_NOT_FOUND) {
        *damaged = folder->n_files != 0;
        code = ERROR_NONE;
    } else if (!code) {
        id_text(folder->identity->node_id, NODE_ID_BYTES, own);
        *damaged = !text.size || text.data[text.size - 1] != '\n' ||
                   !audit_read_seal(text.data, text.size - 1, &folder->head) ||
                   folder->head.type != SEAL_HEAD || !seal_is_good(&folder->head);
        if (!*damaged) {
            seal_signer(&folder->head, node);
            *damaged = strcmp(node, own) != 0;
        }
        folder->has_head = !*damaged;
    }
    buffer_deinit(&text);
    return code;
}

/* Where a file of entries is good up to. */
struct file_scan {
    struct audit_end end; /* in: before it; out: of its last good line */
    uint64_t bytes;       /* of its good lines */
    bool whole;           /* nothing is behind them */
};

static bool scan_line(struct file_scan *scan, const char *line, size_t size)
{
    struct audit_entry entry;
    struct audit_seal gap;
    struct digest hash;
    if (audit_read_seal(line, size, &gap)) {
        if (gap.type != SEAL_GAP || gap.first != scan->end.number + 1 ||
            !digest_equal(&gap.before, &scan->end.hash) || !seal_is_good(&gap))
            return false;
        scan->end = (struct audit_end){gap.last, gap.hash};
        return true;
    }
    if (!audit_read_entry(line, size, &entry) || entry.number != scan->end.number + 1 ||
        !digest_equal(&entry.before, &scan->end.hash))
        return false;
    audit_hash(&entry, &hash);
    if (!digest_equal(&hash, &entry.hash))
        return false;
    scan->end = (struct audit_end){entry.number, entry.hash};
    return true;
}

/* Stops at the first line that is not good, and at the head, which must be met. */
static enum error_code scan_file(const struct record_folder *folder, uint64_t first,
                                 struct file_scan *scan, bool *fits, struct audit_end *recent,
                                 struct error *err)
{
    char path[PATH_MAX];
    const char *line;
    size_t size;
    enum lines_found found = LINES_FAILED;
    struct lines *lines = mem_new(sizeof *lines);
    record_file_path(folder->path, first, path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    *scan = (struct file_scan){.end = scan->end};
    if (!lines || fd < 0) {
        const enum error_code code =
            lines ? record_failed(path, err)
                  : error_set(err, ERROR_NO_MEMORY, "not enough memory for the audit record");
        if (fd >= 0)
            close(fd);
        mem_free(lines);
        return code;
    }
    lines_begin(lines, fd);
    while ((found = lines_next(lines, &line, &size, err)) == LINES_WHOLE) {
        if (!scan_line(scan, line, size))
            break;
        scan->bytes = lines->offset;
        if (recent)
            recent[scan->end.number % RECORD_RECENT] = scan->end;
        if (scan->end.number == folder->head.last)
            *fits = digest_equal(&scan->end.hash, &folder->head.hash);
    }
    scan->whole = found == LINES_END;
    close(fd);
    mem_free(lines);
    return found == LINES_FAILED ? err->code : ERROR_NONE;
}

static enum error_code cut_file(struct record_folder *folder, uint32_t i, uint64_t bytes,
                                struct error *err)
{
    char path[PATH_MAX];
    record_file_path(folder->path, folder->files[i].first, path);
    const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return record_failed(path, err);
    const bool good = !ftruncate(fd, (off_t)bytes) && !fsync(fd);
    const enum error_code code = good ? ERROR_NONE : record_failed(path, err);
    close(fd);
    folder->files[i].bytes = bytes;
    return code;
}

static enum error_code remove_files(struct record_folder *folder, uint32_t from, uint32_t to,
                                    struct error *err)
{
    for (uint32_t i = from; i < to; i++) {
        char path[PATH_MAX];
        record_file_path(folder->path, folder->files[i].first, path);
        if (unlink(path) && errno != ENOENT)
            return record_failed(path, err);
    }
    memmove(folder->files + from, folder->files + to,
            (folder->n_files - to) * sizeof *folder->files);
    folder->n_files -= to - from;
    return ERROR_NONE;
}

/* All that the head covers must be there; what lies behind it is good as far as it is whole, and
 * the rest of it was never promised to anybody. (64 MiB are read in half a second.) */
static enum error_code scan_files(struct record_folder *folder, struct audit_end *recent,
                                  bool *damaged, struct error *err)
{
    const struct audit_seal *head = &folder->head;
    enum error_code code = ERROR_NONE;
    uint32_t i = 0;
    while (i < folder->n_files && folder->files[i].first < head->first)
        i++; /* dropped, when the node ended */
    code = remove_files(folder, 0, i, err);
    struct file_scan scan = {.end = {head->first - 1, head->before}, .whole = true};
    bool fits = head->last + 1 == head->first; /* it has no entries yet */
    for (i = 0; i < folder->n_files && scan.whole && !code; i++) {
        if (folder->files[i].first != scan.end.number + 1)
            break;
        code = scan_file(folder, folder->files[i].first, &scan, &fits, recent, err);
        if (!code && !scan.whole && fits)
            code = cut_file(folder, i, scan.bytes, err);
    }
    folder->written = scan.end;
    *damaged = !code && !fits;
    return code || !fits ? code : remove_files(folder, i, folder->n_files, err);
}

enum error_code record_files_open(struct record_folder *folder, struct audit_end *recent,
                                  bool *damaged, struct error *err)
{
    *damaged = false;
    record_files_close(folder);
    folder->written = (struct audit_end){0};
    enum error_code code = durable_make_folder(folder->path, err);
    if (!code)
        code = record_files_list(folder->path, folder->files, &folder->n_files, err);
    if (!code)
        code = record_head_load(folder, damaged, err);
    if (!code && folder->has_head)
        code = scan_files(folder, recent, damaged, err);
    return code;
}

void record_files_close(struct record_folder *folder)
{
    if (folder->fd >= 0)
        close(folder->fd);
    folder->fd = -1;
}

/* ---- writing ---- */

/* Of eight that were set aside the first seven stay, and the last. */
enum error_code record_files_aside(struct record_folder *folder, char *aside, size_t size,
                                   struct error *err)
{
    int written = 0;
    record_files_close(folder);
    for (int i = 1; i <= RECORD_ASIDE_MAX; i++) {
        written = snprintf(aside, size, "%s.aside-%d", folder->path, i);
        if (written < 0 || (size_t)written >= size)
            return error_set(err, ERROR_INVALID, "the audit record: %s: too long", folder->path);
        if (access(aside, F_OK) && errno == ENOENT)
            break;
        if (i == RECORD_ASIDE_MAX) {
            struct record_folder old = {.fd = -1};
            char head[PATH_MAX];
            snprintf(old.path, sizeof old.path, "%s", aside);
            record_head_path(aside, head);
            if (!record_files_list(aside, old.files, &old.n_files, err) &&
                !remove_files(&old, 0, old.n_files, err))
                unlink(head);
            rmdir(aside);
        }
    }
    if (rename(folder->path, aside))
        return record_failed(aside, err);
    if (durable_sync_folder_of(folder->path))
        return record_failed(folder->path, err);
    folder->n_files = 0;
    folder->has_head = false;
    folder->written = (struct audit_end){0};
    return durable_make_folder(folder->path, err);
}

static enum error_code open_last_file(struct record_folder *folder, uint64_t first,
                                      struct error *err)
{
    char path[PATH_MAX];
    const struct record_file *last = folder->n_files ? &folder->files[folder->n_files - 1] : NULL;
    const bool makes = !last || last->bytes >= LIMIT_AUDIT_SEGMENT_BYTES;
    if (!makes && folder->fd >= 0)
        return ERROR_NONE;
    if (makes && folder->fd >= 0 && fsync(folder->fd))
        return record_failed(folder->path, err);
    record_files_close(folder);
    if (makes && folder->n_files == RECORD_FILES_MAX)
        return error_set(err, ERROR_IO, "the audit record: %s: too many files", folder->path);
    record_file_path(folder->path, makes ? first : last->first, path);
    folder->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (folder->fd < 0 || (makes && durable_sync_folder_of(path)))
        return record_failed(path, err);
    if (makes)
        folder->files[folder->n_files++] =
            (struct record_file){.first = first, .changed_ms = (uint64_t)time(NULL) * 1000};
    return ERROR_NONE;
}

enum error_code record_files_append(struct record_folder *folder, uint64_t first,
                                    const struct buffer *lines, struct error *err)
{
    assert(lines->size && !lines->failed);
    enum error_code code = open_last_file(folder, first, err);
    if (code)
        return code;
    struct record_file *file = &folder->files[folder->n_files - 1];
    const int failure = pwrite_all(folder->fd, lines->data, lines->size, file->bytes);
    if (failure) {
        errno = failure;
        return record_failed(folder->path, err);
    }
    file->bytes += lines->size;
    return ERROR_NONE;
}

enum error_code record_files_sync(struct record_folder *folder, struct error *err)
{
    return folder->fd >= 0 && fsync(folder->fd) ? record_failed(folder->path, err) : ERROR_NONE;
}

static enum error_code store_head(struct record_folder *folder, struct audit_seal *head,
                                  struct error *err)
{
    char path[PATH_MAX];
    struct buffer text = {0};
    record_head_path(folder->path, path);
    enum error_code code = seal_sign(head, folder->identity, err);
    if (!code) {
        audit_write_seal(head, &text);
        code = text.failed ? error_set(err, ERROR_NO_MEMORY, "not enough memory for a record")
                           : durable_replace(path, text.data, text.size, err);
    }
    buffer_deinit(&text);
    if (!code) {
        folder->head = *head;
        folder->has_head = true;
    }
    return code;
}

enum error_code record_files_head(struct record_folder *folder, const struct audit_end *end,
                                  uint64_t now_ms, struct error *err)
{
    struct audit_seal head = {.type = SEAL_HEAD, .first = 1};
    if (folder->has_head)
        head = folder->head;
    head.last = end->number;
    head.hash = end->hash;
    head.time_ms = now_ms;
    assert(head.first <= head.last + 1);
    if (folder->n_files)
        folder->files[folder->n_files - 1].changed_ms = now_ms;
    return store_head(folder, &head, err);
}

/* The number and hash before a file's first line: from that line, which was good when written. */
static enum error_code file_before(const struct record_folder *folder, uint64_t first,
                                   struct digest *before, struct error *err)
{
    char path[PATH_MAX];
    const char *line;
    size_t size;
    struct audit_entry entry;
    struct audit_seal gap;
    struct lines lines;
    record_file_path(folder->path, first, path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return record_failed(path, err);
    lines_begin(&lines, fd);
    const enum lines_found found = lines_next(&lines, &line, &size, err);
    close(fd);
    if (found == LINES_WHOLE && audit_read_entry(line, size, &entry))
        *before = entry.before;
    else if (found == LINES_WHOLE && audit_read_seal(line, size, &gap))
        *before = gap.before;
    else
        return error_set(err, ERROR_INVALID, "the audit record: %s: damaged", path);
    return ERROR_NONE;
}

enum error_code record_files_drop(struct record_folder *folder, uint64_t now_ms, uint32_t days,
                                  struct error *err)
{
    uint64_t bytes = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < folder->n_files; i++)
        bytes += folder->files[i].bytes;
    while (n + 1 < folder->n_files &&
           (bytes > LIMIT_AUDIT_BYTES ||
            folder->files[n].changed_ms + (uint64_t)days * 86400000 < now_ms))
        bytes -= folder->files[n++].bytes;
    if (!n)
        return ERROR_NONE;
    struct audit_seal head = folder->head;
    head.first = folder->files[n].first;
    head.time_ms = now_ms;
    enum error_code code = file_before(folder, head.first, &head.before, err);
    if (!code)
        code = store_head(folder, &head, err);
    return code ? code : remove_files(folder, 0, n, err);
}
