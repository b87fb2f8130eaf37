/* A session whose model answers in the cluster. */
#include "cli/model_word.h"
#include "cli/placing_watch.h"
#include "cli/remote.h"
#include "cli/session.h"
#include "model/model.h"

/* The node is asked first whether there is one: without, nothing of this is wanted. */
static enum error_code is_there(bool *found, struct error *err)
{
    struct daemon_client *client = NULL;
    enum error_code code = daemon_client_open(&client, err);
    daemon_client_close(client);
    *found = code != ERROR_NOT_FOUND;
    return code;
}

static enum error_code place(const char *path, const struct session_flags *flags, struct error *err)
{
    const struct placing_wish wish = {
        .model = path,
        .context = flags->driver.context ? flags->driver.context : UINT32_MAX,
        .streams = UINT32_MAX,
        .idle_s = UINT32_MAX,
    };
    yyjson_doc *ready = NULL;
    enum error_code code = placing_watch(&wish, &ready, err);
    yyjson_doc_free(ready);
    return code;
}

static enum error_code open_all(const char *word, const struct session_flags *flags, struct session *out,
                                struct error *err)
{
    char path[PATH_MAX];
    enum error_code code = model_word_file(word, path, err);
    if (!code)
        code = model_open(path, &out->model, err);
    if (!code)
        code = session_read_vocabulary(out, err);
    if (!code)
        code = place(path, flags, err);
    if (!code)
        code = remote_open(path, &out->remote, err);
    if (!code)
        out->generator = remote_generator(out->remote);
    return code;
}

enum error_code session_open_remote(const char *path, const struct session_flags *flags, struct session *out,
                                    bool *found, struct error *err)
{
    *out = (struct session){0};
    enum error_code code = is_there(found, err);
    if (code)
        return code;
    code = open_all(path, flags, out, err);
    if (code)
        session_close(out);
    return code;
}
