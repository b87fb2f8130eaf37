/* Subjects of alerts in people's words, and back. */
#include "node/daemon_alerts.h"

#include "node/control.h"

#include <stdio.h>
#include <string.h>

bool alert_subject_node(enum alert_about about, const char *subject, char node[65],
                        const char **rest)
{
    const bool has_node =
        about == ALERT_ABOUT_NODE || about == ALERT_ABOUT_DEVICE || about == ALERT_ABOUT_LINK;
    const size_t size = strcspn(subject, "/>");
    if (!has_node || size > 64)
        return false;
    memcpy(node, subject, size);
    node[size] = 0;
    *rest = subject + size;
    return true;
}

void alert_subject_words(const struct daemon *daemon, enum alert_about about, const char *subject,
                         char *out, size_t size)
{
    char node[65];
    const char *rest;
    if (!alert_subject_node(about, subject, node, &rest))
        snprintf(out, size, "%s", subject);
    else if (*rest == '>')
        snprintf(out, size, "%.64s to %.64s", daemon_name_of(daemon, node),
                 daemon_name_of(daemon, rest + 1));
    else
        snprintf(out, size, "%.64s%s", daemon_name_of(daemon, node), rest);
}

static const char *id_of_word(const struct daemon *daemon, const char *word, size_t size,
                              struct error *err)
{
    char name[256];
    snprintf(name, sizeof name, "%.*s", (int)(size < 255 ? size : 255), word);
    const Cluster__Node *node = control_find_node(daemon, name, err);
    return node ? node->id : NULL;
}

enum error_code alert_subject_of_words(const struct daemon *daemon, enum alert_about about,
                                       const char *words, char out[ALERT_SUBJECT_TEXT],
                                       struct error *err)
{
    const size_t first = strcspn(words, "/>");
    const char *from = NULL, *to = NULL;
    int n = -1;
    if (about == ALERT_ABOUT_INSTANCE || about == ALERT_ABOUT_TOKEN) {
        n = snprintf(out, ALERT_SUBJECT_TEXT, "%s", words);
    } else {
        from = id_of_word(daemon, words, first, err);
        to = from && words[first] == '>'
                 ? id_of_word(daemon, words + first + 1, strlen(words + first + 1), err)
                 : "";
        if (!from || !to)
            return ERROR_NOT_FOUND;
        n = *to ? snprintf(out, ALERT_SUBJECT_TEXT, "%s>%s", from, to)
                : snprintf(out, ALERT_SUBJECT_TEXT, "%s%s", from, words + first);
    }
    if (n < 0 || n >= ALERT_SUBJECT_TEXT)
        return error_set(err, ERROR_INVALID, "'%.64s' is too long for what an alert is about",
                         words);
    return ERROR_NONE;
}
