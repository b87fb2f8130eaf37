#include "cli/model_word.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum error_code model_word_file(const char *word, char out[PATH_MAX], struct error *err)
{
    struct stat file;
    if (!realpath(word, out) || stat(out, &file) != 0)
        return error_set(err, errno == ENOENT || errno == ENOTDIR ? ERROR_NOT_FOUND : ERROR_IO,
                         "%s: %s", word, strerror(errno));
    return S_ISREG(file.st_mode) ? ERROR_NONE
                                 : error_set(err, ERROR_INVALID, "%s is not a file", word);
}

static bool is_path(const char *word)
{
    const size_t length = strlen(word);
    return strchr(word, '/') || (length > 5 && strcmp(word + length - 5, ".gguf") == 0);
}

enum error_code model_word(const char *word, char out[PATH_MAX], struct error *err)
{
    struct stat file;
    if (is_path(word) || (stat(word, &file) == 0 && S_ISREG(file.st_mode)))
        return model_word_file(word, out, err);
    if (snprintf(out, PATH_MAX, "%s", word) >= PATH_MAX)
        return error_set(err, ERROR_INVALID, "the model's name is too long");
    return ERROR_NONE;
}
