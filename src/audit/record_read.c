/* Reading a record: its head, then its files in order. */
#include "audit/record_impl.h"

#include "audit/lines.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef bool (*record_line_fn)(void *arg, const char *line, size_t size);

struct record_walk {
    record_line_fn line;
    void *arg;
    bool leaves_torn, over;
    struct lines lines;
};

static enum error_code walk_file(struct record_walk *walk, const char *path, struct error *err)
{
    const char *line;
    size_t size;
    enum lines_found found = LINES_END;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "%s: %s", path,
                         strerror(errno));
    lines_begin(&walk->lines, fd);
    while (!walk->over && (found = lines_next(&walk->lines, &line, &size, err)) < LINES_END) {
        if (found == LINES_WHOLE || !walk->leaves_torn)
            walk->over = !walk->line(walk->arg, line, size);
    }
    close(fd);
    return found == LINES_FAILED ? err->code : ERROR_NONE;
}

static enum error_code walk_folder(struct record_walk *walk, const char *path, uint64_t from,
                                   struct error *err)
{
    struct record_file *files = mem_new_array(RECORD_FILES_MAX, sizeof *files);
    char name[PATH_MAX];
    uint32_t n = 0, i = 0;
    enum error_code code =
        files ? record_files_list(path, files, &n, err)
              : error_set(err, ERROR_NO_MEMORY, "not enough memory for the audit record");
    if (!code) {
        snprintf(name, sizeof name, "%s/head", path);
        code = walk_file(walk, name, err);
        if (code == ERROR_NOT_FOUND && n)
            code = ERROR_NONE; /* that it lacks is found */
    }
    while (i + 1 < n && files[i + 1].first <= from)
        i++;
    for (; i < n && !code && !walk->over; i++) {
        record_file_path(path, files[i].first, name);
        code = walk_file(walk, name, err);
    }
    mem_free(files);
    return code;
}

enum error_code record_read(const char *path, uint64_t from, bool running, record_line_fn line,
                            void *arg, struct error *err)
{
    struct stat facts;
    struct record_walk *walk = mem_new(sizeof *walk);
    if (!walk)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the audit record");
    walk->line = line;
    walk->arg = arg;
    walk->leaves_torn = running;
    enum error_code code;
    if (stat(path, &facts))
        code = error_set(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "%s: %s", path,
                         strerror(errno));
    else
        code = S_ISDIR(facts.st_mode) ? walk_folder(walk, path, from, err)
                                      : walk_file(walk, path, err);
    mem_free(walk);
    return code;
}
