/* Tells alerts to somebody outside: a POST of JSON to a webhook, for each that is raised or cleared
 * (docs/alerts.md). The loop only queues (post/post.h): nothing here waits for the receiver. */
#pragma once

#include "base/error.h"
#include "cluster/state.h"

#include <stdbool.h>

struct alert_hook;
struct daemon;

struct alert_hook_options {
    const char *url;
    const char *url_file;    /* its first line is the URL: others' lists of processes show none */
    const char *secret_file; /* its first line signs each body; NULL: nothing is signed */
};

/* Somebody is to be told: by an option, or by the variable of the environment that names a URL
 * where neither option does. */
#define ALERT_HOOK_VARIABLE "MEDLEY_ALERT_WEBHOOK"
bool alert_hook_is_wanted(const struct alert_hook_options *options);

enum { ALERT_HOOK_SECRET_BYTES = 4096, ALERT_HOOK_LINGER_MS = 1000 };

/* ERROR_INVALID, ERROR_NOT_FOUND, ERROR_IO, ERROR_NO_MEMORY. */
enum error_code alert_hook_open(const struct alert_hook_options *options, struct alert_hook **out,
                                struct error *err);
void alert_hook_send(struct alert_hook *hook, const struct daemon *daemon,
                     const Cluster__Alert *alert, bool is_over);
void alert_hook_close(struct alert_hook *hook); /* NULL is fine */
