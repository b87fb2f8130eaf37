#include "hub/shelf.h"

#include "base/mem.h"
#include "base/state_folder.h"
#include "hub/pull_state.h"
#include "trust/digest.h"

#include <stdio.h>
#include <string.h>

enum error_code pulled_folder(char out[PATH_MAX], struct error *err)
{
    if (state_folder_file("pulled", out, PATH_MAX))
        return ERROR_NONE;
    return error_set(err, ERROR_NOT_FOUND,
                     "there is no folder for pulled models; set MEDLEY_STATE_DIR or HOME");
}

/* A host may have a port, and of an address of IPv6 its brackets. */
static void pulled_host(const char *host, char out[HUB_TEXT])
{
    size_t i = 0;
    for (; host[i] && i < HUB_TEXT - 1; i++) {
        out[i] = host[i];
        if (!hub_name_piece_holds(&host[i], 1) && !(i > 0 && host[i] == '.'))
            out[i] = '_';
    }
    out[i] = '\0';
}

/* All parts of a model lie together: the URL of the first part names their folder. */
static enum error_code pulled_url_digest(const struct hub_name *name, char out[DIGEST_TEXT],
                                         struct error *err)
{
    char url[HUB_URL_TEXT];
    unsigned part, n_parts;
    size_t stem;
    struct digest digest;
    memcpy(url, name->url, sizeof url);
    char *tail = strstr(url, name->file);
    if (tail && hub_part_of(name->file, &part, &n_parts, &stem))
        memcpy(tail + stem + 1, "00001", 5);
    const enum error_code code = digest_of(url, strlen(url), &digest, err);
    if (!code)
        digest_text(&digest, out);
    return code;
}

enum error_code pulled_folder_of(const struct hub_name *name, char out[PATH_MAX], struct error *err)
{
    char base[PATH_MAX], host[HUB_TEXT], digest[DIGEST_TEXT];
    int length = 0;
    enum error_code code = pulled_folder(base, err);
    if (code)
        return code;
    pulled_host(name->host, host);
    switch (name->kind) {
    case HUB_PATH:
        return error_set(err, ERROR_INVALID, "a path is not pulled");
    case HUB_HF:
        length = snprintf(out, PATH_MAX, "%s/hf/%s/%s", base, name->owner, name->model);
        break;
    case HUB_OLLAMA:
        if (name->host[0])
            length =
                snprintf(out, PATH_MAX, "%s/ollama/%s/%s/%s", base, host, name->owner, name->model);
        else if (strcmp(name->owner, "library") != 0)
            length = snprintf(out, PATH_MAX, "%s/ollama/%s/%s", base, name->owner, name->model);
        else
            length = snprintf(out, PATH_MAX, "%s/ollama/%s", base, name->model);
        break;
    case HUB_URL:
        code = pulled_url_digest(name, digest, err);
        if (code)
            return code;
        length = snprintf(out, PATH_MAX, "%s/url/%s/%s", base, host, digest);
        break;
    }
    if (length < 0 || length >= PATH_MAX)
        return error_set(err, ERROR_INVALID, "the path of the pulled model is too long");
    return ERROR_NONE;
}

enum error_code pulled_parse(const char *bytes, size_t size, struct pulled_state *out,
                             struct error *err)
{
    struct pull_state *state = mem_new(sizeof *state);
    *out = (struct pulled_state){0};
    if (!state)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the state of a pull");
    const enum error_code code = pull_state_read(bytes, size, state, err);
    if (!code)
        *out = (struct pulled_state){.size = state->size, .done = pull_state_done(state)};
    mem_free(state);
    return code;
}
