#include "gpu/plugins.h"

#include "base/log.h"
#include "base/this_process.h"

#include <dirent.h>
#include <dlfcn.h>
#include <ggml-backend.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the folder ------------------------------------------------------------------------ */

static bool holds_plugins(const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return false;
    bool found = false;
    const struct dirent *entry;
    while (!found && (entry = readdir(dir)))
        found = strncmp(entry->d_name, "libggml-cpu", 11) == 0;
    closedir(dir);
    return found;
}

/* Where libggml itself lies: its plugins are in LIBDIR/ggml/backendsN (Debian; N is the
 * soname's version), in LIBDIR/ggml, or beside it. */
static bool find_beside_libggml(char folder[static PATH_MAX])
{
    Dl_info info;
    if (!dladdr((void *)(uintptr_t)ggml_backend_load_all, &info) || !info.dli_fname)
        return false;
    char libdir[PATH_MAX - 64];
    snprintf(libdir, sizeof libdir, "%s", info.dli_fname);
    char *slash = strrchr(libdir, '/');
    if (!slash)
        return false;
    *slash = 0;
    const char *version = strstr(slash + 1, ".so.");
    if (version) {
        snprintf(folder, PATH_MAX, "%s/ggml/backends%.*s", libdir, (int)strcspn(version + 4, "."),
                 version + 4);
        if (holds_plugins(folder))
            return true;
    }
    snprintf(folder, PATH_MAX, "%s/ggml", libdir);
    if (holds_plugins(folder))
        return true;
    snprintf(folder, PATH_MAX, "%s", libdir);
    return holds_plugins(folder);
}

static bool find_beside_program(char folder[static PATH_MAX])
{
    if (!this_program_path(folder))
        return false;
    char *slash = strrchr(folder, '/');
    if (!slash)
        return false;
    *slash = 0;
    return holds_plugins(folder);
}

static char the_folder[PATH_MAX];

static void find_folder(void)
{
    if (!find_beside_libggml(the_folder) && !find_beside_program(the_folder))
        the_folder[0] = 0;
}

const char *plugins_folder(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_folder);
    return the_folder;
}

/* ---- loading --------------------------------------------------------------------------- */

/* libggml-STEM.so or libggml-STEM-variant.so */
static bool is_plugin_of(const char *file, const char *stem)
{
    size_t length = strlen(stem);
    if (strncmp(file, "libggml-", 8) != 0 || strncmp(file + 8, stem, length) != 0)
        return false;
    const char *rest = file + 8 + length;
    size_t rest_length = strlen(rest);
    return strcmp(rest, ".so") == 0 ||
           (rest[0] == '-' && rest_length > 3 && strcmp(rest + rest_length - 3, ".so") == 0);
}

bool plugin_is_there(const char *stem)
{
    const char *folder = plugins_folder();
    DIR *dir = folder[0] ? opendir(folder) : NULL;
    bool found = false;
    const struct dirent *entry;
    while (dir && !found && (entry = readdir(dir)))
        found = is_plugin_of(entry->d_name, stem);
    if (dir)
        closedir(dir);
    return found;
}

/* How well the plugin fits this machine: 0 not at all; 1 for a plugin that does not rate itself. */
static int score_of(const char *path, void **library, struct error *err)
{
    *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!*library) {
        error_set(err, ERROR_UNSUPPORTED, "its plugin does not load: %s", dlerror());
        return 0;
    }
    void *symbol = dlsym(*library, "ggml_backend_score");
    if (!symbol)
        return 1;
    int score = ((int (*)(void))(uintptr_t)symbol)();
    if (score <= 0)
        error_set(err, ERROR_UNSUPPORTED, "its plugin %s does not run on this machine's processor",
                  path);
    return score;
}

struct best {
    char path[PATH_MAX];
    void *library; /* kept open, so that ggml does not load it from the disk again */
    int score;
    bool any_file;
};

static void plugins_consider(struct best *best, const char *folder, const char *file,
                             struct error *err)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path)
        return;
    best->any_file = true;
    void *library;
    int score = score_of(path, &library, err);
    if (score > best->score) {
        if (best->library)
            dlclose(best->library);
        best->library = library;
        best->score = score;
        memcpy(best->path, path, sizeof path);
    } else if (library) {
        dlclose(library);
    }
}

enum error_code plugin_load(const char *stem, struct error *err)
{
    const char *folder = plugins_folder();
    DIR *dir = folder[0] ? opendir(folder) : NULL;
    if (!dir)
        return error_set(err, ERROR_NOT_FOUND, "ggml's plugins are not installed");
    struct best best = {0};
    const struct dirent *entry;
    while ((entry = readdir(dir))) {
        if (is_plugin_of(entry->d_name, stem))
            plugins_consider(&best, folder, entry->d_name, err);
    }
    closedir(dir);
    if (!best.any_file)
        return error_set(err, ERROR_NOT_FOUND, "libggml-%s.so is not in %s", stem, folder);
    if (!best.library)
        return ERROR_UNSUPPORTED; /* plugins_consider() has said why */
    ggml_backend_reg_t reg = ggml_backend_load(best.path);
    dlclose(best.library);
    if (!reg)
        return error_set(err, ERROR_UNSUPPORTED,
                         "ggml refuses its own plugin %s (MEDLEY_LOG=debug says why)", best.path);
    return ERROR_NONE;
}

/* ---- ggml's log ------------------------------------------------------------------------ */

static _Thread_local char last_error[160];

static void remember_error(const char *text, int length)
{
    snprintf(last_error, sizeof last_error, "%.*s", length, text);
    for (char *at = last_error; *at; at++)
        *at = *at < ' ' || *at > '~' ? '?' : *at;
}

void plugins_forget_error(void)
{
    last_error[0] = 0;
}

const char *plugins_last_error(void)
{
    return last_error;
}

static void log_from_ggml(enum ggml_log_level level, const char *text, void *unused)
{
    (void)unused;
    int length = (int)strcspn(text, "\n");
    if (length && level == GGML_LOG_LEVEL_ERROR)
        remember_error(text, length);
    if (length)
        log_line(level == GGML_LOG_LEVEL_ERROR ? LOG_WARN : LOG_DEBUG, "ggml", "%.*s", length,
                 text);
}

void plugins_log_hook(void)
{
    ggml_log_set(log_from_ggml, NULL);
}
