/* All files of a model brought here, and finding what was brought before. */
#include "base/clock.h"
#include "base/durable_file.h"
#include "base/log.h"
#include "base/mem.h"
#include "hub/hub_impl.h"
#include "hub/pull_disk.h"
#include "trust/digest.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* Two files of one name in different folders of a repository keep their folders in their names. */
static bool hub_is_alone(const struct hub_list *list, uint32_t file)
{
    const char *base = hub_base(list->files.files[file].path);
    for (uint32_t i = 0; i < list->files.n; i++) {
        if (i != file && strcmp(hub_base(list->files.files[i].path), base) == 0)
            return false;
    }
    return true;
}

enum error_code hub_file_path(const struct hub_list *list, const char *folder, uint32_t file,
                              char out[PATH_MAX], struct error *err)
{
    char name[2 * HUB_TEXT] = "";
    const char *path = list->files.files[file].path;
    size_t used = 0;
    if (hub_is_alone(list, file))
        path = hub_base(path);
    for (; *path; path++)
        used +=
            (size_t)snprintf(name + used, sizeof name - used, *path == '/' ? "--" : "%c", *path);
    if (snprintf(out, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        return error_set(err, ERROR_INVALID, "the path of the pulled model is too long");
    return ERROR_NONE;
}

/* ---- pulling --------------------------------------------------------------------------------- */

struct hub_checking {
    const struct pull_watch *watch;
    struct pull_progress progress;
    uint64_t told_ns;
};

static bool hub_on_checked(void *arg, uint64_t bytes)
{
    struct hub_checking *checking = arg;
    const uint64_t now_ns = clock_now_ns();
    checking->progress.done += bytes;
    if (now_ns - checking->told_ns < PULL_REPORT_MS * UINT64_C(1000000))
        return true;
    checking->told_ns = now_ns;
    if (checking->watch && checking->watch->each)
        checking->watch->each(checking->watch->arg, &checking->progress);
    return true;
}

/* Whether the file that is here is the one that the hub has. Without a hash there is no telling,
 * but a file of the same name and size. */
static bool hub_is_here(const struct hub_file *file, const char *path,
                        const struct pull_watch *watch)
{
    struct stat here;
    struct digest digest;
    char text[DIGEST_TEXT];
    struct hub_checking checking = {.watch = watch, .progress = {.what = hub_base(path)}};
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool is_it = fd >= 0 && fstat(fd, &here) == 0 && S_ISREG(here.st_mode) &&
                 (!file->size || (uint64_t)here.st_size == file->size);
    if (is_it && file->sha256[0]) {
        checking.progress.size = (uint64_t)here.st_size;
        checking.progress.is_checking = true;
        is_it =
            !digest_file(fd, 0, (uint64_t)here.st_size, hub_on_checked, &checking, &digest, NULL) &&
            strcasecmp(digest_text(&digest, text), file->sha256) == 0;
    }
    if (fd >= 0)
        close(fd);
    return is_it;
}

static enum error_code hub_check_hash(const struct hub_list *list, const struct hub_file *file,
                                      struct error *err)
{
    if (file->sha256[0] || list->name.kind == HUB_URL)
        return ERROR_NONE;
    return error_set(err, ERROR_UNSUPPORTED,
                     "the hub gives no SHA-256 of %s; say which it has to be with --sha256",
                     file->path);
}

static enum error_code hub_fetch_layer(const struct hub_list *list, const struct hub_layer *layer,
                                       const char *kind, const char *path, struct error *err)
{
    char url[HUB_URL_TEXT], hash[DIGEST_TEXT];
    struct buffer bytes = {0};
    struct digest digest;
    enum error_code code = hub_blob_url(list, layer->sha256, url, err);
    if (!code)
        code = http_text(url, &list->place, NULL, HUB_LAYER_BYTES, kind, &bytes, NULL, err);
    if (!code)
        code = digest_of(bytes.data ? bytes.data : "", bytes.size, &digest, err);
    if (!code && strcasecmp(digest_text(&digest, hash), layer->sha256) != 0)
        code = error_set(err, ERROR_INVALID, "its SHA-256 is another");
    if (!code)
        code = durable_replace(path, bytes.data, bytes.size, err);
    buffer_deinit(&bytes);
    return code;
}

/* To PATH.KIND. The model is of use without it. */
static void hub_pull_layer(const struct hub_list *list, const struct hub_layer *layer,
                           const char *kind, const char *model_path)
{
    char path[PATH_MAX];
    struct error err;
    struct hub_file file = {.size = layer->size};
    memcpy(file.sha256, layer->sha256, PULL_SHA256);
    if (!layer->sha256[0] ||
        snprintf(path, sizeof path, "%s.%s", model_path, kind) >= (int)sizeof path ||
        hub_is_here(&file, path, NULL))
        return;
    if (hub_fetch_layer(list, layer, kind, path, &err))
        log_line(LOG_WARN, "hub", "%s: its %s layer is not used: %s", hub_base(model_path), kind,
                 err.text);
}

static void hub_pull_layers(const struct hub_list *list, const struct hub_file *file,
                            const char *path)
{
    hub_pull_layer(list, &file->params, "params", path);
    hub_pull_layer(list, &file->system, "system", path);
}

static enum error_code hub_pull_one(const struct hub_list *list, uint32_t index,
                                    const struct pull_watch *watch, const char *path,
                                    struct hub_got *got, struct error *err)
{
    char url[HUB_URL_TEXT];
    struct pull_result result;
    const struct hub_file *file = &list->files.files[index];
    enum error_code code = hub_check_hash(list, file, err);
    if (!code && hub_is_here(file, path, watch)) {
        struct stat here = {0};
        pull_disk_tidy(path);
        stat(path, &here);
        got->bytes += (uint64_t)here.st_size;
        return ERROR_NONE;
    }
    if (!code)
        code = hub_file_url(list, index, url, err);
    if (code)
        return code;
    const struct pull_order order = {.url = url,
                                     .path = path,
                                     .what = hub_base(path),
                                     .place = list->place,
                                     .size = file->size,
                                     .sha256 = file->sha256,
                                     .connections = list->settings.connections};
    code = pull_file(&order, watch, &result, err);
    got->was_here = false;
    got->bytes += result.size;
    got->received += result.received;
    got->resumed |= result.resumed;
    return code;
}

/* Before the first byte: what lacks of all parts together. */
static enum error_code hub_check_room(const struct hub_list *list,
                                      const struct hub_model_entry *model, struct error *err)
{
    char path[PATH_MAX], part[PATH_MAX + 8];
    uint64_t lacks = 0;
    struct stat here;
    for (uint32_t i = 0; i < model->n_files; i++) {
        const uint64_t size = list->files.files[model->files[i]].size;
        const enum error_code code = hub_file_path(list, list->folder, model->files[i], path, err);
        if (code)
            return code;
        snprintf(part, sizeof part, "%s" PULLED_PART, path);
        uint64_t there = 0;
        if (stat(path, &here) == 0 || stat(part, &here) == 0)
            there = (uint64_t)here.st_blocks * 512;
        lacks += there < size ? size - there : 0;
    }
    return lacks ? pull_check_room(list->folder, lacks, err) : ERROR_NONE;
}

/* The one with which a model of the repository sees; of several that of F16, which computes what it
 * was made with in half the bytes of F32. False: there is none. */
static bool hub_find_projector(const struct hub_list *list, uint32_t *out)
{
    bool found = false;
    for (uint32_t i = 0; i < list->files.n; i++) {
        const char *base = hub_base(list->files.files[i].path);
        const size_t size = strlen(base);
        const bool is_f16 = strcasestr(base, "f16") && !strcasestr(base, "bf16");
        if (!strcasestr(base, "mmproj") || size < 6 || strcasecmp(base + size - 5, ".gguf") != 0 ||
            (found && !is_f16))
            continue;
        *out = i;
        found = true;
    }
    return found;
}

static enum error_code hub_pull_projector(const struct hub_list *list,
                                          const struct pull_watch *watch, struct hub_got *got,
                                          struct error *err)
{
    uint32_t index;
    char path[PATH_MAX];
    struct error why;
    if (list->settings.no_projector || list->name.kind != HUB_HF ||
        !hub_find_projector(list, &index))
        return ERROR_NONE;
    enum error_code code = hub_file_path(list, list->folder, index, path, &why);
    if (!code)
        code = hub_pull_one(list, index, watch, path, got, &why);
    if (code == ERROR_CANCELLED)
        return error_set(err, code, "%s", why.text);
    if (code)
        log_line(LOG_WARN, "hub", "%s: without its projector %s: %s", list->name.model,
                 list->files.files[index].path, why.text);
    return ERROR_NONE;
}

enum error_code hub_pull(const struct hub_list *list, uint32_t model,
                         const struct pull_watch *watch, char path[PATH_MAX], struct hub_got *out,
                         struct error *err)
{
    assert(model < list->n_models);
    const struct hub_model_entry *entry = &list->models[model];
    *out = (struct hub_got){.was_here = true, .is_checked = true};
    enum error_code code = hub_check_room(list, entry, err);
    for (uint32_t i = 0; i < entry->n_files && !code; i++) {
        char file[PATH_MAX];
        code = hub_file_path(list, list->folder, entry->files[i], file, err);
        if (!code)
            code = hub_pull_one(list, entry->files[i], watch, file, out, err);
        out->is_checked &= list->files.files[entry->files[i]].sha256[0] != '\0';
        if (!code)
            hub_pull_layers(list, &list->files.files[entry->files[i]], file);
        if (!code && i == 0)
            memcpy(path, file, PATH_MAX);
    }
    return code ? code : hub_pull_projector(list, watch, out, err);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

enum error_code hub_model_file(const struct hub_list *list, uint32_t model, uint32_t index,
                               const struct hub_file **out, char path[PATH_MAX], struct error *err)
{
    assert(model < list->n_models && index < list->models[model].n_files);
    const uint32_t at = list->models[model].files[index];
    const struct hub_file *file = &list->files.files[at];
    *out = file;
    if (!hub_is_sha256(file->sha256) || !file->size)
        return error_set(err, ERROR_UNSUPPORTED, "the hub gives no SHA-256 of %s", file->path);
    return hub_file_path(list, list->folder, at, path, err);
}

enum error_code hub_pull_some(const struct hub_list *list, uint32_t model, uint32_t index,
                              struct pull_wish *wish, struct error *err)
{
    char url[HUB_URL_TEXT], path[PATH_MAX];
    const struct hub_file *file;
    enum error_code code = hub_model_file(list, model, index, &file, path, err);
    if (!code)
        code = hub_file_url(list, list->models[model].files[index], url, err);
    if (code)
        return code;
    const struct pull_order order = {.url = url,
                                     .path = path,
                                     .what = hub_base(path),
                                     .place = list->place,
                                     .size = file->size,
                                     .sha256 = file->sha256,
                                     .connections = list->settings.connections};
    return pull_some(&order, wish, err);
}

/* ---- finding --------------------------------------------------------------------------------- */

static enum error_code hub_scan(const char *folder, struct hub_files *out, struct error *err)
{
    DIR *open_folder = opendir(folder);
    if (!open_folder)
        return error_set(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "%s: %s", folder,
                         strerror(errno));
    enum error_code code = ERROR_NONE;
    const struct dirent *entry;
    while (!code && (entry = readdir(open_folder)) && out->n < HUB_FILES_MAX) {
        const size_t size = strlen(entry->d_name);
        if (size >= HUB_TEXT || size < 6 || strcmp(entry->d_name + size - 5, ".gguf") != 0)
            continue;
        struct hub_file *more = mem_resize(out->files, out->n + 1, sizeof *more);
        if (!more) {
            code = error_set(err, ERROR_NO_MEMORY, "not enough memory for the list of files");
            break;
        }
        out->files = more;
        more[out->n] = (struct hub_file){0};
        memcpy(more[out->n++].path, entry->d_name, size + 1);
    }
    closedir(open_folder);
    return code;
}

/* The one that came last. */
static bool hub_find_newest(const char *folder, const struct hub_files *files,
                            const struct hub_model_entry *models, uint32_t n, char path[PATH_MAX])
{
    struct timespec newest = {0};
    bool found = false;
    for (uint32_t i = 0; i < n; i++) {
        char one[PATH_MAX];
        struct stat here;
        if (snprintf(one, sizeof one, "%s/%s", folder, files->files[models[i].files[0]].path) >=
                PATH_MAX ||
            stat(one, &here) != 0 || !S_ISREG(here.st_mode) ||
            (found &&
             (here.st_mtim.tv_sec < newest.tv_sec ||
              (here.st_mtim.tv_sec == newest.tv_sec && here.st_mtim.tv_nsec < newest.tv_nsec))))
            continue;
        found = true;
        newest = here.st_mtim;
        memcpy(path, one, sizeof one);
    }
    return found;
}

enum error_code hub_find(const struct hub_name *name, char path[PATH_MAX], struct error *err)
{
    char folder[PATH_MAX];
    struct hub_files files = {0};
    struct hub_name wanted = *name;
    struct hub_model_entry *models = mem_new_array(QUANT_MODELS, sizeof *models);
    enum error_code code = models ? pulled_folder_of(name, folder, err)
                                  : error_set(err, ERROR_NO_MEMORY, "not enough memory");
    if (!code)
        code = hub_scan(folder, &files, err);
    if (name->kind == HUB_OLLAMA)
        snprintf(wanted.file, sizeof wanted.file, "%.*s.gguf", HUB_TEXT - 6, name->tag);
    if (!code) {
        const uint32_t n = hub_keep_named(&wanted, &files, models, quant_models(&files, models));
        if (!hub_find_newest(folder, &files, models, n, path))
            code = error_set(err, ERROR_NOT_FOUND, "%s has no such model", folder);
    }
    hub_files_deinit(&files);
    mem_free(models);
    return code;
}
