#include "cli/model_word.h"

#include "cli/daemon.h"
#include "cli/model_given.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum error_code model_word_file(const char *word, char out[PATH_MAX], struct error *err)
{
    struct stat file;
    enum error_code code = model_given(word, out, err);
    if (code)
        return code;
    return stat(out, &file) == 0 && S_ISREG(file.st_mode)
               ? ERROR_NONE
               : error_set(err, ERROR_INVALID, "%s is not a file", word);
}

/* Whether the cluster of this machine's node has a model of that name. */
static bool model_word_is_known(const char *word)
{
    yyjson_doc *answer = NULL;
    yyjson_val *model;
    size_t i, n;
    bool known = false;
    if (daemon_ask(daemon_question("status"), true, &answer, NULL))
        return false;
    yyjson_arr_foreach(yyjson_obj_get(yyjson_doc_get_root(answer), "models"), i, n, model)
    {
        known = known || yyjson_equals_str(yyjson_obj_get(model, "name"), word);
    }
    yyjson_doc_free(answer);
    return known;
}

static enum error_code model_word_take(const char *word, char out[PATH_MAX], struct error *err)
{
    return snprintf(out, PATH_MAX, "%s", word) < PATH_MAX
               ? ERROR_NONE
               : error_set(err, ERROR_INVALID, "the model's name is too long");
}

/* Whether it must be a file: nobody calls a model of a cluster so. */
static bool model_word_is_file(const char *word)
{
    const size_t length = strlen(word);
    return strchr(word, '/') || (length > 5 && strcmp(word + length - 5, ".gguf") == 0);
}

enum error_code model_word(const char *word, char out[PATH_MAX], struct error *err)
{
    struct stat file;
    enum error_code code = model_word_file(word, out, err);
    if (hub_name_is_one(word) || model_word_is_file(word) || stat(word, &file) == 0)
        return code;
    /* The cluster's own names go first: a file here must not take one over. */
    return code == ERROR_NOT_FOUND || model_word_is_known(word) ? model_word_take(word, out, err)
                                                                : code;
}
