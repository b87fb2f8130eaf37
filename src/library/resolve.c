#include "library/resolve.h"

#include "library/library.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool library_word_is_path(const char *word)
{
    return word[0] == '/' || strncmp(word, "./", 2) == 0 || strncmp(word, "../", 3) == 0 ||
           strcmp(word, ".") == 0 || strcmp(word, "..") == 0;
}

enum error_code library_resolve_name(const char *word, char out[PATH_MAX], struct error *err)
{
    const struct library_options options = {0};
    const struct library_model *model;
    struct library library;
    enum error_code code = library_find(&options, &library, err);
    if (code)
        return code;
    code = library_choose(&library, word, &model, err);
    if (!code && snprintf(out, PATH_MAX, "%s", model->path) >= PATH_MAX)
        code = error_set(err, ERROR_INVALID, "the path of model %s is too long", model->name);
    library_deinit(&library);
    return code;
}

enum error_code library_resolve(const char *word, char out[PATH_MAX], struct error *err)
{
    struct stat file;
    if (stat(word, &file) == 0 && realpath(word, out))
        return ERROR_NONE;
    /* An open file without a name, as /proc shows it. */
    if (word[0] == '/' && stat(word, &file) == 0 && strlen(word) < PATH_MAX) {
        memcpy(out, word, strlen(word) + 1);
        return ERROR_NONE;
    }
    if (library_word_is_path(word))
        return error_set(err, errno == ENOENT || errno == ENOTDIR ? ERROR_NOT_FOUND : ERROR_IO,
                         "%s: %s", word, strerror(errno));
    return library_resolve_name(word, out, err);
}
