#include "api/access_kept.h"

#include "api/access.h"
#include "base/durable_file.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void access_kept_open(struct access_kept *kept, const char *state_folder, struct access *access,
                      uint64_t wall_ms)
{
    struct buffer text = {0};
    struct error err;
    *kept = (struct access_kept){0};
    if (!state_folder || !state_folder[0] ||
        durable_path(state_folder, "token-usage", "", kept->path, &err) ||
        durable_path(state_folder, "token-usage", ".new", kept->beside, &err)) {
        kept->path[0] = 0;
        return;
    }
    const enum error_code code = durable_read(kept->path, LIMIT_ACCESS_USAGE_BYTES, 0, &text, &err);
    if (!code)
        access_usage_read(access, text.data, text.size, wall_ms);
    else if (code != ERROR_NOT_FOUND)
        log_line(LOG_WARN, "api", "%s; tokens a day are counted from now on", err.text);
    buffer_deinit(&text);
    kept->version = access_usage_version(access);
}

/* errno's value. */
static int access_kept_write(const struct access_kept *kept, const struct buffer *text)
{
    const int fd = open(kept->beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return errno;
    const int problem = text->size ? pwrite_all(fd, text->data, text->size, 0) : 0;
    close(fd);
    return problem ? problem : rename(kept->beside, kept->path) ? errno : 0;
}

void access_kept_flush(struct access_kept *kept, struct access *access, uint64_t wall_ms)
{
    struct buffer text = {0};
    if (!kept->path[0] || kept->version == access_usage_version(access))
        return;
    access_usage_write(access, wall_ms, &text);
    const int problem = text.failed ? ENOMEM : access_kept_write(kept, &text);
    if (problem)
        log_line(LOG_WARN, "api", "%s: %s; a restart forgets what tokens have used today",
                 kept->path, strerror(problem));
    buffer_deinit(&text);
    kept->version = access_usage_version(access);
    kept->written_ms = wall_ms;
}

bool access_kept_step(struct access_kept *kept, struct access *access, uint64_t wall_ms)
{
    if (!kept->path[0] || kept->version == access_usage_version(access))
        return false;
    if (wall_ms - kept->written_ms <
        ACCESS_KEPT_MS) /* a clock that was set back does not stop it */
        return true;
    access_kept_flush(kept, access, wall_ms);
    return false;
}
