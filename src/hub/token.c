#include "hub/token.h"

#include "base/durable_file.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One word of printable ASCII, which fits a header. */
static bool hub_token_take(const char *text, size_t size, char out[HTTP_TOKEN])
{
    while (size > 0 && strchr(" \t\r\n", text[size - 1]))
        size--;
    if (size == 0 || size >= HTTP_TOKEN)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    }
    memcpy(out, text, size);
    out[size] = '\0';
    return true;
}

/* `forbidden`: bits that its mode may not have. */
static enum error_code hub_token_file(const char *path, unsigned forbidden, char out[HTTP_TOKEN],
                                      struct error *err)
{
    struct buffer bytes = {0};
    enum error_code code = durable_read(path, HTTP_TOKEN + 16, forbidden, &bytes, err);
    if (!code && !hub_token_take(bytes.data ? bytes.data : "", bytes.size, out))
        code = error_set(err, ERROR_INVALID, "%s holds no token: one line of letters", path);
    buffer_deinit(&bytes);
    return code;
}

static enum error_code hub_token_found(const char *folder, const char *rest, unsigned forbidden,
                                       char out[HTTP_TOKEN])
{
    char path[PATH_MAX];
    struct error why;
    if (snprintf(path, sizeof path, "%s/%s", folder, rest) >= PATH_MAX)
        return ERROR_NONE;
    const enum error_code code = hub_token_file(path, forbidden, out, &why);
    if (code && code != ERROR_NOT_FOUND)
        log_line(LOG_WARN, "hub", "no token is used: %s", why.text);
    return ERROR_NONE;
}

enum error_code hub_token(const char *file, char out[HTTP_TOKEN], struct error *err)
{
    const char *own = getenv("HF_TOKEN"), *path = getenv("HF_TOKEN_PATH");
    const char *hub = getenv("HF_HOME"), *home = getenv("HOME");
    const char *given = getenv("CREDENTIALS_DIRECTORY");
    out[0] = '\0';
    if (file)
        return hub_token_file(file, 077, out, err);
    if (own && own[0])
        return hub_token_take(own, strlen(own), out)
                   ? ERROR_NONE
                   : error_set(err, ERROR_INVALID, "HF_TOKEN holds no token: one word");
    if (path && path[0])
        return hub_token_file(path, 077, out, err);
    if (given && given[0])
        hub_token_found(given, "medley.hub-token", 0, out);
    if (out[0])
        return ERROR_NONE;
    if (hub && hub[0])
        return hub_token_found(hub, "token", 077, out);
    return home && home[0] ? hub_token_found(home, ".cache/huggingface/token", 077, out)
                           : ERROR_NONE;
}
