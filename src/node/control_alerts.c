/* Alerts: what is up and what was, their lines, and what people set about them. */
#include "node/control.h"

#include "agreement/agreement.h"
#include "base/limits.h"
#include "node/daemon_alerts.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one alert ---- */

void alert_id_text(const Cluster__Alert *alert, char *out, size_t size)
{
    assert(size);
    snprintf(out, size, "%s@%s", alert->kind, alert->subject);
}

/* The ids that it is about, each by what it is. */
static void put_subject(yyjson_mut_doc *doc, yyjson_mut_val *object, const Cluster__Alert *alert)
{
    yyjson_mut_val *subject = yyjson_mut_obj_add_obj(doc, object, "subject");
    const enum alert_kind kind = alert_kind_find(alert->kind, strlen(alert->kind));
    char node[65];
    const char *rest = "";
    if (kind == ALERT_KINDS)
        return; /* of a newer version: its text says it */
    const enum alert_about about = alert_rule(kind)->about;
    if (!alert_subject_node(about, alert->subject, node, &rest)) {
        yyjson_mut_obj_add_strcpy(doc, subject, alert_about_name(about), alert->subject);
        return;
    }
    yyjson_mut_obj_add_strcpy(doc, subject, "node", node);
    if (about == ALERT_ABOUT_DEVICE && *rest)
        yyjson_mut_obj_add_strcpy(doc, subject, "device", rest + 1);
    if (about == ALERT_ABOUT_LINK)
        yyjson_mut_obj_add_strcpy(doc, subject, "link", alert->subject);
}

static void put_text_if(yyjson_mut_doc *doc, yyjson_mut_val *object, const char *key,
                        const char *text)
{
    if (text)
        yyjson_mut_obj_add_strcpy(doc, object, key, text);
    else
        yyjson_mut_obj_add_null(doc, object, key);
}

void alert_put_json(const struct daemon *daemon, yyjson_mut_doc *doc, yyjson_mut_val *object,
                    const Cluster__Alert *alert)
{
    char id[LIMIT_CLUSTER_TEXT_BYTES], about[ALERT_SUBJECT_TEXT];
    const enum alert_kind kind = alert_kind_find(alert->kind, strlen(alert->kind));
    alert_id_text(alert, id, sizeof id);
    snprintf(about, sizeof about, "%s", alert->subject);
    if (kind != ALERT_KINDS)
        alert_subject_words(daemon, alert_rule(kind)->about, alert->subject, about, sizeof about);
    yyjson_mut_obj_add_strcpy(doc, object, "id", id);
    yyjson_mut_obj_add_strcpy(doc, object, "kind", alert->kind);
    yyjson_mut_obj_add_str(doc, object, "severity", alert->critical ? "critical" : "warning");
    put_subject(doc, object, alert);
    yyjson_mut_obj_add_strcpy(doc, object, "about", about);
    yyjson_mut_obj_add_uint(doc, object, "raised_ms", alert->raised_ms);
    if (alert->has_cleared_ms)
        yyjson_mut_obj_add_uint(doc, object, "cleared_ms", alert->cleared_ms);
    put_text_if(doc, object, "text", alert->text);
    put_text_if(doc, object, "mend", alert->mend);
    if (alert->why)
        yyjson_mut_obj_add_strcpy(doc, object, "why", alert->why);
}

/* ---- all of them ---- */

static void put_kinds(struct daemon *daemon, yyjson_mut_doc *doc, yyjson_mut_val *root)
{
    static struct alerts lines; /* large, and the loop's alone */
    static struct alert_mutes mutes;
    daemon_alerts_settings(daemon, &lines, &mutes);
    yyjson_mut_val *kinds = yyjson_mut_obj_add_arr(doc, root, "kinds");
    for (unsigned kind = 0; kind < ALERT_KINDS; kind++) {
        const struct alert_rule *rule = alert_rule((enum alert_kind)kind);
        yyjson_mut_val *item = yyjson_mut_arr_add_obj(doc, kinds);
        yyjson_mut_obj_add_str(doc, item, "kind", rule->name);
        yyjson_mut_obj_add_str(doc, item, "severity", alert_severity_name(rule->severity));
        yyjson_mut_obj_add_str(doc, item, "reads", rule->reads);
        yyjson_mut_obj_add_str(doc, item, "unit", alert_unit_name(rule->unit));
        yyjson_mut_obj_add_real(doc, item, "raise", lines.lines[kind].raise);
        yyjson_mut_obj_add_real(doc, item, "clear", lines.lines[kind].clear);
        yyjson_mut_obj_add_real(doc, item, "raise_after_s",
                                (double)lines.lines[kind].raise_ms / 1000);
        yyjson_mut_obj_add_real(doc, item, "clear_after_s",
                                (double)lines.lines[kind].clear_ms / 1000);
    }
    yyjson_mut_val *muted = yyjson_mut_obj_add_arr(doc, root, "muted");
    for (uint32_t i = 0; i < mutes.n; i++) {
        const struct alert_mute *mute = &mutes.list[i];
        yyjson_mut_val *item = yyjson_mut_arr_add_obj(doc, muted);
        yyjson_mut_obj_add_str(doc, item, "kind",
                               mute->kind == ALERT_KINDS ? ALERT_ALL
                                                         : alert_rule(mute->kind)->name);
        put_text_if(doc, item, "subject", mute->subject);
        yyjson_mut_obj_add_uint(doc, item, "until_ms", mute->until_ms);
    }
}

static void put_alerts(struct daemon *daemon, yyjson_mut_doc *doc, yyjson_mut_val *root)
{
    const Cluster__State *state = daemon_state(daemon)->root;
    yyjson_mut_val *up = yyjson_mut_obj_add_arr(doc, root, "alerts");
    for (size_t i = 0; state && i < state->n_alerts; i++)
        alert_put_json(daemon, doc, yyjson_mut_arr_add_obj(doc, up), state->alerts[i]);
    yyjson_mut_val *cleared = yyjson_mut_obj_add_arr(doc, root, "cleared");
    for (size_t i = 0; state && i < state->n_cleared_alerts; i++)
        alert_put_json(daemon, doc, yyjson_mut_arr_add_obj(doc, cleared), state->cleared_alerts[i]);
}

static void control_alerts_follow(struct conversation *conversation, uint64_t index,
                                  const Cluster__Event *event, bool applied)
{
    const Cluster__Alert *alert = applied ? daemon_alert_of(conversation->daemon, event) : NULL;
    const bool raised = event->kind_case == CLUSTER__EVENT__KIND_ALERT_RAISED;
    yyjson_mut_doc *doc;
    if (!alert)
        return;
    yyjson_mut_val *root = control_object(&doc);
    alert_put_json(conversation->daemon, doc,
                   yyjson_mut_obj_add_obj(doc, root, raised ? "raised" : "cleared"), alert);
    control_answer(conversation, doc);
}

/* ---- what people set ---- */

static void propose_setting(struct conversation *conversation, const char *key, const char *value,
                            const char *answer)
{
    Cluster__Setting setting = CLUSTER__SETTING__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    setting.key = (char *)(uintptr_t)key;
    setting.value = (char *)(uintptr_t)value;
    event.kind_case = CLUSTER__EVENT__KIND_SETTING_CHANGED;
    event.setting_changed = &setting;
    control_propose(conversation, &event, answer, key + strlen(ALERT_SETTINGS));
}

static void fail_kind(struct conversation *conversation, const char *text)
{
    struct error err;
    error_set(&err, ERROR_INVALID,
              "there is no alert '%.64s'; `medley alerts --kinds` lists all of them", text);
    control_fail(conversation, &err);
}

static void control_alerts_line(struct conversation *conversation, const char *what,
                                yyjson_val *value)
{
    static struct alerts lines; /* large, and the loop's alone */
    static struct alert_mutes mutes;
    const char *rest;
    const enum alert_kind kind = alert_key_kind(what, &rest);
    char key[256], text[32] = "";
    struct error err;
    if (kind == ALERT_KINDS || *rest != '.') {
        fail_kind(conversation, what);
        return;
    }
    daemon_alerts_settings(conversation->daemon, &lines, &mutes);
    if (yyjson_is_num(value))
        snprintf(text, sizeof text, "%g", yyjson_get_num(value));
    if (*text &&
        alert_lines_set(alert_rule(kind), &lines.lines[kind], rest + 1, atof(text), &err)) {
        control_fail(conversation, &err);
        return;
    }
    snprintf(key, sizeof key, ALERT_SETTINGS "%.200s", what);
    propose_setting(conversation, key, text, *text ? "set" : "unset");
}

/* One that has run out makes room for others: it is proposed to be unset beside. */
static void drop_old_mute(struct daemon *daemon)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    for (size_t i = 0; root && i < root->n_settings; i++) {
        Cluster__Setting setting = CLUSTER__SETTING__INIT;
        Cluster__Event event = CLUSTER__EVENT__INIT;
        const Cluster__Setting *old = root->settings[i];
        if (strncmp(old->key, ALERT_MUTE, strlen(ALERT_MUTE)) != 0 ||
            strtoull(old->value ? old->value : "", NULL, 10) > daemon_wall_ms())
            continue;
        setting.key = old->key;
        setting.value = (char *)(uintptr_t)"";
        event.kind_case = CLUSTER__EVENT__KIND_SETTING_CHANGED;
        event.setting_changed = &setting;
        agreement_propose(daemon->agreement, &event, NULL, NULL);
        return;
    }
}

/* "KIND", "KIND@WORDS" or "all": the setting's key. */
static enum error_code mute_key(const struct daemon *daemon, const char *what, char key[512],
                                struct error *err)
{
    const char *rest;
    char subject[ALERT_SUBJECT_TEXT];
    const enum alert_kind kind = alert_key_kind(what, &rest);
    if (strcmp(what, ALERT_ALL) == 0) {
        snprintf(key, 512, ALERT_MUTE ALERT_ALL);
        return ERROR_NONE;
    }
    if (kind == ALERT_KINDS || (*rest && *rest != '@'))
        return error_set(err, ERROR_INVALID,
                         "there is no alert '%.64s'; `medley alerts --kinds` lists all of them",
                         what);
    if (!*rest) {
        snprintf(key, 512, ALERT_MUTE "%s", what);
        return ERROR_NONE;
    }
    const enum error_code code =
        alert_subject_of_words(daemon, alert_rule(kind)->about, rest + 1, subject, err);
    if (!code)
        snprintf(key, 512, ALERT_MUTE "%s@%s", alert_rule(kind)->name, subject);
    return code;
}

static void control_alerts_mute(struct conversation *conversation, const char *what,
                                uint64_t seconds)
{
    static struct alerts lines; /* large, and the loop's alone */
    static struct alert_mutes mutes;
    struct daemon *daemon = conversation->daemon;
    char key[512], until[24] = "";
    struct error err;
    enum error_code code = mute_key(daemon, what, key, &err);
    daemon_alerts_settings(daemon, &lines, &mutes);
    if (!code && seconds && mutes.n == LIMIT_ALERT_MUTES)
        code = error_set(&err, ERROR_INVALID,
                         "%d alerts are muted already; end some with `medley alerts --unmute`",
                         LIMIT_ALERT_MUTES);
    if (code) {
        control_fail(conversation, &err);
        return;
    }
    if (seconds)
        snprintf(until, sizeof until, "%" PRIu64, daemon_wall_ms() + seconds * 1000);
    drop_old_mute(daemon);
    propose_setting(conversation, key, until, seconds ? "muted" : "unmuted");
}

void control_alerts(struct conversation *conversation, yyjson_val *request)
{
    struct daemon *daemon = conversation->daemon;
    const char *set = control_text(request, "set"), *mute = control_text(request, "mute");
    const char *unmute = control_text(request, "unmute");
    uint64_t seconds;
    if (!control_number(conversation, request, "seconds", LIMIT_ALERT_MUTE_S, 8 * 3600, &seconds) ||
        ((set || mute || unmute) && !control_require_member(conversation)))
        return;
    if (set) {
        control_alerts_line(conversation, set, yyjson_obj_get(request, "value"));
    } else if (mute || unmute) {
        control_alerts_mute(conversation, mute ? mute : unmute, mute ? seconds : 0);
    } else {
        yyjson_mut_doc *doc;
        yyjson_mut_val *root = control_object(&doc);
        put_alerts(daemon, doc, root);
        if (yyjson_is_true(yyjson_obj_get(request, "kinds")))
            put_kinds(daemon, doc, root);
        control_answer(conversation, doc);
        if (yyjson_is_true(yyjson_obj_get(request, "follow")))
            conversation->calls = (struct conversation_calls){.event = control_alerts_follow};
        else
            control_end(conversation);
    }
}
