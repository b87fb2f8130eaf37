/* Alerts of the cluster (alerts/alerts.h): what this node tells the leader of what only it can see;
 * as leader, the readings of all nodes, and what is proposed; what is sent to a webhook. On the
 * loop's thread. */
#pragma once

#include "alerts/alert_settings.h"
#include "cluster/state.h"

#include "node.pb-c.h"

#include <yyjson.h>

struct daemon;
struct daemon_alerts;

struct daemon_alerts *daemon_alerts_new(void); /* NULL: no memory */
void daemon_alerts_free(struct daemon_alerts *alerts);

/* Fills in `tells` and its like; good until the next call. own_alerts.c */
void daemon_alerts_tell(struct daemon *daemon, Node__Now *now);
/* A step of the leader, where this node is that; else nothing. */
void daemon_alerts_step(struct daemon *daemon);

/* An event that counts: the leader tells the webhook of it. */
void daemon_alerts_applied(struct daemon *daemon, const Cluster__Event *event);
/* The record of an alert that an event has just raised or cleared; NULL: it is none such. */
const Cluster__Alert *daemon_alert_of(const struct daemon *daemon, const Cluster__Event *event);

/* The lines and mutes as the settings are now. */
void daemon_alerts_settings(struct daemon *daemon, struct alerts *alerts,
                            struct alert_mutes *mutes);

/* How alerts are said to programs: the object of one, as docs/control.md has it. "id" is good as a
 * key: KIND@SUBJECT. */
void alert_put_json(const struct daemon *daemon, yyjson_mut_doc *doc, yyjson_mut_val *object,
                    const Cluster__Alert *alert);
/* Its id; always ended by zero. */
void alert_id_text(const Cluster__Alert *alert, char *out, size_t size);

/* ---- words: alert_words.c ---- */

/* A subject as people call it, by names: "tower/gpu0", "tower to laptop". */
void alert_subject_words(const struct daemon *daemon, enum alert_about about, const char *subject,
                         char *out, size_t size);
/* The node that a subject begins with; false: it is about none. `rest` behind it: "" or "/gpu0". */
bool alert_subject_node(enum alert_about about, const char *subject, char node[65],
                        const char **rest);
/* The reverse, for words of people: ids in the place of names. ERROR_NOT_FOUND. */
enum error_code alert_subject_of_words(const struct daemon *daemon, enum alert_about about,
                                       const char *words, char out[ALERT_SUBJECT_TEXT],
                                       struct error *err);
