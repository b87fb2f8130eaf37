/* A session whose model answers in the cluster. */
#include "cli/daemon.h"
#include "cli/model_word.h"
#include "cli/placing_watch.h"
#include "cli/remote.h"
#include "cli/session.h"
#include "model/model.h"

#include <limits.h>
#include <string.h>

/* The node is asked first whether there is one: without, nothing of this is wanted. */
static enum error_code session_remote_is_there(bool *found, struct error *err)
{
    struct daemon_client *client = NULL;
    enum error_code code = daemon_client_open(&client, err);
    daemon_client_close(client);
    *found = code != ERROR_NOT_FOUND;
    return code;
}

static enum error_code session_remote_place(const char *path, const struct session_flags *flags,
                                            struct error *err)
{
    const struct placing_request request = {
        .model = path,
        .context = flags->driver.context ? flags->driver.context : UINT32_MAX,
        .streams = UINT32_MAX,
        .cells = UINT32_MAX,
        .idle_s = UINT32_MAX,
    };
    yyjson_doc *ready = NULL;
    enum error_code code = placing_watch(&request, &ready, err);
    yyjson_doc_free(ready);
    return code;
}

/* Where the vocabulary can be read: the file that was given, or what the node has of a model of
 * that name. And what requests of it begin with. */
static enum error_code find_file(const char *model, char out[PATH_MAX],
                                 struct library_defaults *defaults, struct error *err)
{
    yyjson_doc *answer = NULL;
    if (model[0] == '/') {
        memcpy(out, model, strlen(model) + 1);
        return library_defaults_read(out, defaults, err);
    }
    yyjson_mut_doc *question = daemon_question("where");
    daemon_question_text(question, "model", model);
    enum error_code code = daemon_ask(question, true, &answer, err);
    if (code)
        return code;
    yyjson_val *root = yyjson_doc_get_root(answer), *said = yyjson_obj_get(root, "defaults");
    const char *path = yyjson_get_str(yyjson_obj_get(root, "path"));
    if (yyjson_is_str(said)) /* with its zero */
        buffer_append(&defaults->json, yyjson_get_str(said), yyjson_get_len(said) + 1);
    if (!path || strlen(path) >= PATH_MAX)
        code = error_set(err, ERROR_IO,
                         "the node's answer makes no sense; do both have the same version?");
    else
        memcpy(out, path, strlen(path) + 1);
    if (!code && defaults->json.failed)
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for a model's defaults");
    yyjson_doc_free(answer);
    return code;
}

static enum error_code session_remote_open_all(const char *word, const struct session_flags *flags,
                                               struct session *out, struct error *err)
{
    char path[PATH_MAX], file[PATH_MAX];
    enum error_code code = model_word(word, path, err);
    if (!code)
        code = find_file(path, file, &out->defaults, err);
    if (!flags->takes_defaults)
        library_defaults_deinit(&out->defaults);
    if (!code)
        code = model_open(file, &out->model, err);
    if (!code)
        code = session_read_vocabulary(out, err);
    if (!code)
        code = session_remote_place(path, flags, err);
    if (!code)
        code = remote_open(path, &out->remote, err);
    if (!code)
        out->generator = remote_generator(out->remote);
    return code;
}

enum error_code session_open_remote(const char *path, const struct session_flags *flags,
                                    struct session *out, bool *found, struct error *err)
{
    *out = (struct session){0};
    enum error_code code = session_remote_is_there(found, err);
    if (code)
        return code;
    code = session_remote_open_all(path, flags, out, err);
    if (code)
        session_close(out);
    return code;
}
