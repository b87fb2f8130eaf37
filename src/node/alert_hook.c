#include "node/alert_hook.h"

#include "base/json_memory.h"
#include "base/log.h"
#include "base/mem.h"
#include "node/daemon_alerts.h"
#include "node/daemon_state.h"
#include "post/post.h"
#include "trust/hmac.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct alert_hook {
    struct post *post;
    size_t secret_size; /* 0: nothing is signed */
    char secret[ALERT_HOOK_SECRET_BYTES];
};

static enum error_code hook_read_line(const char *path, const char *what, char *out, size_t *size,
                                      struct error *err)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set(err, ERROR_NOT_FOUND, "%s: %s", path, strerror(errno));
    const char *line = fgets(out, ALERT_HOOK_SECRET_BYTES, file);
    fclose(file);
    *size = line ? strcspn(out, "\r\n") : 0;
    if (!*size || *size == ALERT_HOOK_SECRET_BYTES - 1)
        return error_set(err, ERROR_INVALID, "%s: its first line has to be %s, up to %d bytes",
                         path, what, ALERT_HOOK_SECRET_BYTES - 2);
    out[*size] = 0;
    return ERROR_NONE;
}

/* On the post's thread: the secret does not change. */
static bool hook_sign(void *self, const struct buffer *body, char *line, size_t size)
{
    const struct alert_hook *hook = self;
    char mac[HMAC_TEXT];
    hmac_text(hook->secret, hook->secret_size, body->data ? body->data : "", body->size, mac);
    const int n = snprintf(line, size, "X-Medley-Signature: sha256=%s", mac);
    return n > 0 && (size_t)n < size;
}

bool alert_hook_is_wanted(const struct alert_hook_options *options)
{
    const char *url = getenv(ALERT_HOOK_VARIABLE);
    return options->url || options->url_file || (url && *url);
}

/* Into `out`, [ALERT_HOOK_SECRET_BYTES]. */
static enum error_code hook_find_url(const struct alert_hook_options *options, char *out,
                                     struct error *err)
{
    const char *url = options->url ? options->url : getenv(ALERT_HOOK_VARIABLE);
    size_t size;
    if (options->url && options->url_file)
        return error_set(err, ERROR_INVALID, "give the URL or --alert-webhook-file, not both");
    if (options->url_file)
        return hook_read_line(options->url_file, "the webhook's URL", out, &size, err);
    assert(url);
    const int n = snprintf(out, ALERT_HOOK_SECRET_BYTES, "%s", url);
    return n >= 0 && n < ALERT_HOOK_SECRET_BYTES
               ? ERROR_NONE
               : error_set(err, ERROR_INVALID, "the URL is longer than %d bytes",
                           ALERT_HOOK_SECRET_BYTES - 1);
}

enum error_code alert_hook_open(const struct alert_hook_options *options, struct alert_hook **out,
                                struct error *err)
{
    struct alert_hook *hook = mem_new(sizeof *hook);
    if (!hook)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a webhook");
    char url[ALERT_HOOK_SECRET_BYTES];
    struct post_options post = {.url = url};
    enum error_code code = hook_find_url(options, url, err);
    if (!code && options->secret_file)
        code = hook_read_line(options->secret_file, "the secret", hook->secret, &hook->secret_size,
                              err);
    if (hook->secret_size)
        post.sign = hook_sign, post.sign_self = hook;
    if (!code)
        code = post_open(&post, &hook->post, err);
    explicit_bzero(url, sizeof url);
    if (code) {
        explicit_bzero(hook->secret, sizeof hook->secret);
        mem_free(hook);
        return error_wrap(err, "--alert-webhook");
    }
    *out = hook;
    return ERROR_NONE;
}

/* "Medley, critical: attic has not been heard for 3 s. Look whether …": what chat services show. */
static void hook_put_text(yyjson_mut_doc *doc, yyjson_mut_val *root, const Cluster__Alert *alert,
                          bool is_over)
{
    char text[2 * LIMIT_ALERT_BYTES];
    const char *what = alert->text ? alert->text : alert->kind;
    if (is_over)
        snprintf(text, sizeof text, "Medley, over: %s", what);
    else
        snprintf(text, sizeof text, "Medley, %s: %s. %s", alert->critical ? "critical" : "warning",
                 what, alert->mend ? alert->mend : "");
    yyjson_mut_obj_add_strcpy(doc, root, "text", text);
    yyjson_mut_obj_add_strcpy(doc, root, "content", text); /* Discord's name for it */
}

void alert_hook_send(struct alert_hook *hook, const struct daemon *daemon,
                     const Cluster__Alert *alert, bool is_over)
{
    struct buffer body = {0};
    size_t size = 0;
    yyjson_mut_doc *doc = yyjson_mut_doc_new(&json_memory);
    yyjson_mut_val *root = doc ? yyjson_mut_obj(doc) : NULL;
    if (!root) {
        yyjson_mut_doc_free(doc);
        log_line(LOG_WARN, "alerts", "not enough memory to tell the webhook");
        return;
    }
    yyjson_mut_doc_set_root(doc, root);
    hook_put_text(doc, root, alert, is_over);
    yyjson_mut_obj_add_str(doc, root, "event", is_over ? "cleared" : "raised");
    alert_put_json(daemon, doc, yyjson_mut_obj_add_obj(doc, root, "alert"), alert);
    yyjson_mut_obj_add_strcpy(doc, root, "told_by", daemon->name);
    char *json = yyjson_mut_write_opts(doc, 0, &json_memory, &size, NULL);
    if (json)
        buffer_append(&body, json, size);
    else
        body.failed = true;
    mem_free(json);
    yyjson_mut_doc_free(doc);
    if (!post_send(hook->post, &body))
        log_line(LOG_WARN, "alerts", "too much waits for the webhook: an alert is not told");
}

void alert_hook_close(struct alert_hook *hook)
{
    if (!hook)
        return;
    post_close(hook->post, ALERT_HOOK_LINGER_MS);
    explicit_bzero(hook->secret, sizeof hook->secret);
    mem_free(hook);
}
