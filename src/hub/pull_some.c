#include "hub/pull_some.h"

#include "base/mem.h"
#include "hub/pull_impl.h"
#include "hub/shelf.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum error_code pull_some_all(struct pull *pull, struct error *err)
{
    bool resumed;
    enum error_code code = pull_learn(pull, err);
    if (!code && !pull->has_ranges)
        code = error_set(err, ERROR_UNSUPPORTED, "%s: its server gives whole files only",
                         pull->order->what);
    if (!code)
        code = pull_disk_open(&pull->disk, pull->order->path, err);
    if (!code)
        code = pull_disk_begin(&pull->disk, &pull->state, &resumed, err);
    if (code)
        return code;
    pull->wish->each(pull->wish->arg, &pull->state, 0);
    code = pull_run(pull, err);
    pull->wish->each(pull->wish->arg, &pull->state, pull->bytes_per_s);
    return code;
}

enum error_code pull_some(const struct pull_order *order, struct pull_wish *wish, struct error *err)
{
    enum error_code code = http_url_check(order->url, order->place.plain, err);
    if (code)
        return error_wrap(err, "%s", order->what);
    struct pull *pull = mem_new(sizeof *pull);
    if (!pull)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to pull a model");
    pull->order = order;
    pull->wish = wish;
    pull->multi = curl_multi_init();
    code = pull->multi ? pull_some_all(pull, err)
                       : error_set(err, ERROR_NO_MEMORY, "libcurl cannot begin: not enough memory");
    pull_free(pull);
    return code;
}

static bool pull_some_unlink(const char *path, const char *ending)
{
    char beside[PATH_MAX];
    return snprintf(beside, sizeof beside, "%s%s", path, ending) < PATH_MAX &&
           (unlink(beside) == 0 || errno == ENOENT);
}

/* What says which bytes are here goes first: without it they count for nothing. */
enum error_code pull_some_release(const char *path, char part[PATH_MAX], struct error *err)
{
    if (snprintf(part, PATH_MAX, "%s" PULLED_PART, path) >= PATH_MAX)
        return error_set(err, ERROR_INVALID, "the path of the pulled model is too long");
    if (!pull_some_unlink(path, PULLED_STATE) || !pull_some_unlink(path, PULLED_LIVE))
        return error_set(err, ERROR_IO, "removing %s" PULLED_STATE ": %s", path, strerror(errno));
    return ERROR_NONE;
}

void pull_some_drop(const char *path)
{
    pull_some_unlink(path, PULLED_STATE);
    pull_some_unlink(path, PULLED_LIVE);
    pull_some_unlink(path, PULLED_PART);
}
