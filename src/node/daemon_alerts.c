/* The leader's readings of the whole cluster, and what it proposes. */
#include "node/daemon_alerts.h"

#include "agreement/agreement.h"
#include "alerts/alert_asks.h"
#include "base/log.h"
#include "base/mem.h"
#include "clusterfile/cluster.h"
#include "hosting/part_options.h"
#include "node/alert_hook.h"
#include "node/daemon_run.h"
#include "node/daemon_state.h"
#include "node/lead.h"
#include "node/peers.h"
#include "node/telling.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    STEP_MS = 250,
    READINGS_MAX = 64,
    TURNS_MAX = 128,
    PROPOSE_MAX = 16,
    UNMET_MAX = 64,
    TELL_AGAIN_MS = 120 * 1000
};
#define DAY_MS 86400e3
#define TOKEN_LIFE_MS (30 * DAY_MS) /* tokens that were made for less are meant to end */

struct daemon_alerts {
    struct alerts machine;
    struct alert_mutes mutes;
    struct alert_asks asks;
    bool leads;
    uint64_t stepped_ms, began_ms;
    struct alert_turn turns[TURNS_MAX]; /* of this step */
    uint32_t n_turns;
    struct alert_reading readings[READINGS_MAX]; /* on their way to the machine */
    char subjects[READINGS_MAX][ALERT_SUBJECT_TEXT];
    uint32_t n_readings;
    struct { /* members that this leader has never heard, since it first looked for them */
        char id[65];
        uint64_t since_ms;
    } unmet[UNMET_MAX];
    uint32_t n_unmet;
};

struct daemon_alerts *daemon_alerts_new(void)
{
    struct daemon_alerts *alerts = mem_new(sizeof *alerts);
    if (alerts)
        alerts_init(&alerts->machine);
    return alerts;
}

void daemon_alerts_free(struct daemon_alerts *alerts)
{
    mem_free(alerts);
}

void daemon_alerts_settings(struct daemon *daemon, struct alerts *alerts, struct alert_mutes *mutes)
{
    static struct alert_setting list[LIMIT_CLUSTER_SETTINGS];
    const Cluster__State *root = daemon_state(daemon)->root;
    size_t n = 0;
    for (size_t i = 0; root && i < root->n_settings && n < LIMIT_CLUSTER_SETTINGS; i++) {
        const Cluster__Setting *setting = root->settings[i];
        if (setting->value && strncmp(setting->key, ALERT_SETTINGS, strlen(ALERT_SETTINGS)) == 0)
            list[n++] = (struct alert_setting){setting->key, setting->value};
    }
    alert_settings_all(alerts, mutes, list, n, daemon_wall_ms());
}

/* ---- readings --------------------------------------------------------------------------- */

static void readings_flush(struct daemon_alerts *own, uint64_t now_ms)
{
    own->n_turns += alerts_step(&own->machine, own->readings, own->n_readings, now_ms,
                                own->turns + own->n_turns, TURNS_MAX - own->n_turns);
    own->n_readings = 0;
}

__attribute__((format(printf, 5, 6))) static void
readings_add(struct daemon *daemon, enum alert_kind kind, enum alert_reading_state state,
             double value, const char *format, ...)
{
    struct daemon_alerts *own = daemon->alerts;
    char *subject = own->subjects[own->n_readings];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(subject, ALERT_SUBJECT_TEXT, format, args);
    va_end(args);
    if (n < 0 || n >= ALERT_SUBJECT_TEXT)
        return;
    if (state == ALERT_KNOWN && !isfinite(value))
        state = ALERT_UNKNOWN;
    own->readings[own->n_readings++] = (struct alert_reading){kind, state, subject, value};
    if (own->n_readings == READINGS_MAX)
        readings_flush(own, daemon_now_ms(daemon));
}

static enum alert_reading_state known_if(bool known)
{
    return known ? ALERT_KNOWN : ALERT_UNKNOWN;
}

/* A member that this node has never heard is missed since it was first looked for: it may just have
 * been let in, or this node just have begun. 0: it is not missed. */
static uint64_t unmet_since(struct daemon_alerts *own, const char *id, uint64_t now_ms, bool is_met)
{
    uint32_t i = 0;
    while (i < own->n_unmet && strcmp(own->unmet[i].id, id) != 0)
        i++;
    if (is_met && i < own->n_unmet)
        own->unmet[i] = own->unmet[--own->n_unmet];
    if (is_met || (i == own->n_unmet && i == UNMET_MAX))
        return 0;
    if (i == own->n_unmet) {
        own->unmet[own->n_unmet++].since_ms = now_ms;
        snprintf(own->unmet[i].id, sizeof own->unmet[i].id, "%s", id);
    }
    return own->unmet[i].since_ms;
}

static void readings_of_presence(struct daemon *daemon, const char *id, const struct peer *peer)
{
    const uint64_t now = daemon_now_ms(daemon);
    const uint64_t heard = !peer ? 0 : peer->link && !peer->is_silent ? now : peer->heard_ms;
    const uint64_t unmet = unmet_since(daemon->alerts, id, now, heard);
    const uint64_t since = heard ? heard : unmet;
    const bool known = heard || (unmet && now - unmet >= FIRST_LINK_MS);
    if (daemon_was_stopped(peer)) { /* by somebody, who knows */
        readings_add(daemon, ALERT_NODE_LOST, ALERT_KNOWN, 0, "%s", id);
        return;
    }
    readings_add(daemon, ALERT_NODE_LOST, known_if(known),
                 (double)(now > since ? now - since : 0) / 1000, "%s", id);
}

static bool device_has_layers(const Cluster__State *root, const char *node, const char *device)
{
    for (size_t i = 0; i < root->n_instances; i++) {
        const Cluster__Placement *placement = root->instances[i]->current;
        for (size_t j = 0; placement && j < placement->n_stages; j++) {
            if (strcmp(placement->stages[j]->node, node) == 0 &&
                strcmp(placement->stages[j]->device, device) == 0)
                return true;
        }
    }
    return false;
}

static void readings_of_device(struct daemon *daemon, const char *node,
                               const Cluster__Device *device, const Node__DeviceNow *now)
{
    const bool heat = now && now->has_headroom_ppm;
    const bool memory = now && now->has_free_bytes && device->memory_bytes;
    readings_add(daemon, ALERT_DEVICE_HOT, known_if(heat),
                 heat ? 100 - (double)now->headroom_ppm / 1e4 : 0, "%s/%s", node, device->id);
    readings_add(daemon, ALERT_MEMORY_FULL, known_if(memory),
                 memory ? 100 - 100 * (double)now->free_bytes / (double)device->memory_bytes : 0,
                 "%s/%s", node, device->id);
    const bool assumed = device->speed < CLUSTER_GIVEN; /* not said: a guess */
    readings_add(daemon, ALERT_CALIBRATION_MISSING, ALERT_KNOWN,
                 assumed && device_has_layers(daemon_state(daemon)->root, node, device->id),
                 "%s/%s", node, device->id);
}

static const Node__DeviceNow *device_now(const Node__Now *now, const char *id)
{
    for (size_t i = 0; now && i < now->n_devices; i++) {
        if (now->devices[i]->id && strcmp(now->devices[i]->id, id) == 0)
            return now->devices[i];
    }
    return NULL;
}

/* What a node told of a subject of its own; NULL: nothing, so it is good. */
static const Node__AlertTell *tell_find(const Node__Now *now, const struct alert_rule *rule,
                                        const char *what)
{
    for (size_t i = 0; i < now->n_tells; i++) {
        const char *of = now->tells[i]->what ? now->tells[i]->what : "";
        if (strcmp(now->tells[i]->kind, rule->name) == 0 && strcmp(of, what) == 0)
            return now->tells[i];
    }
    return NULL;
}

/* ---- what is followed already ----------------------------------------------------------- */

static bool subject_is_gone(const struct daemon *daemon, enum alert_about about,
                            const char *subject)
{
    const struct state *state = daemon_state(daemon);
    char node[65];
    const char *rest;
    if (about == ALERT_ABOUT_INSTANCE)
        return !state_instance(state, subject);
    if (about == ALERT_ABOUT_TOKEN)
        return !state_token_named(state, subject);
    if (!alert_subject_node(about, subject, node, &rest))
        return true;
    const Cluster__NodeRecord *record = state_node(state, node);
    if (!record || !record->admitted)
        return true;
    return (*rest == '/' && !state_device(record, rest + 1)) ||
           (*rest == '>' && !state_node(state, rest + 1));
}

/* What is not there is nobody's to tell of: it would only take the place of others. */
static void readings_of_tells(struct daemon *daemon, const char *node, const Node__Now *now)
{
    for (size_t i = 0; i < now->n_tells; i++) {
        const Node__AlertTell *tell = now->tells[i];
        const enum alert_kind kind = alert_kind_find(tell->kind, strlen(tell->kind));
        if (kind == ALERT_KINDS || !alert_rule(kind)->by_node)
            continue; /* of another version, or not for a node to say */
        char subject[ALERT_SUBJECT_TEXT];
        const enum alert_about about = alert_rule(kind)->about;
        const char *joint = !tell->what ? "" : about == ALERT_ABOUT_LINK ? ">" : "/";
        const int n =
            snprintf(subject, sizeof subject, "%s%s%s", node, joint, tell->what ? tell->what : "");
        if (n > 0 && n < ALERT_SUBJECT_TEXT && !subject_is_gone(daemon, about, subject))
            readings_add(daemon, kind, known_if(tell->has_value), tell->value, "%s", subject);
    }
}

/* As told lately by a node that is heard; NULL: nothing is known of it now. */
static const Node__Now *heard_now(const struct daemon *daemon, const char *node)
{
    const struct peer *peer = daemon_peer(daemon, node);
    if (strcmp(node, daemon->id) == 0)
        return daemon->now;
    return peer && peer->link && !peer->is_silent ? peer->now : NULL;
}

/* What is followed and gone; and what its node does not list any more, so that it is good. */
static void readings_of_followed(struct daemon *daemon)
{
    struct daemon_alerts *own = daemon->alerts;
    for (uint32_t i = own->machine.n; i-- > 0 && i < own->machine.n;) {
        const struct alert_track *track = &own->machine.tracks[i];
        const struct alert_rule *rule = alert_rule(track->kind);
        char node[65];
        const char *rest = "";
        if (subject_is_gone(daemon, rule->about, track->subject)) {
            readings_add(daemon, track->kind, ALERT_GONE, 0, "%s", track->subject);
            continue;
        }
        const bool has_node = alert_subject_node(rule->about, track->subject, node, &rest);
        const Node__Now *now = rule->by_node && has_node ? heard_now(daemon, node) : NULL;
        if (now && now->tells_alerts && !tell_find(now, rule, *rest ? rest + 1 : rest))
            readings_add(daemon, track->kind, ALERT_KNOWN, own->machine.lines[track->kind].clear,
                         "%s", track->subject);
    }
}

/* ---- the cluster ------------------------------------------------------------------------ */

static void readings_of_node(struct daemon *daemon, const Cluster__Node *node)
{
    const struct peer *peer = daemon_peer(daemon, node->id);
    const bool is_self = strcmp(node->id, daemon->id) == 0;
    const Node__Now *now = heard_now(daemon, node->id);
    if (!is_self)
        readings_of_presence(daemon, node->id, peer);
    for (size_t i = 0; i < node->n_devices; i++)
        readings_of_device(daemon, node->id, node->devices[i],
                           device_now(now, node->devices[i]->id));
    if (!is_self)
        readings_add(daemon, ALERT_CLOCK_OFF, known_if(now && peer->has_clock),
                     peer ? fabs((double)peer->clock_off_ms) / 1000 : 0, "%s", node->id);
    if (now && now->tells_alerts)
        readings_of_tells(daemon, node->id, now);
}

/* NULL: nothing lately. */
static const Node__Driving *instance_driving(const struct daemon *daemon,
                                             const Cluster__Instance *instance)
{
    const Cluster__Placement *current = instance->current;
    return current && current->n_stages && heard_now(daemon, current->stages[0]->node)
               ? telling_driving(daemon, instance)
               : NULL;
}

/* The forecast is of all streams together, so it is compared while all of them are in use; else the
 * reading is unknown. */
static void readings_of_speed(struct daemon *daemon, const Cluster__Instance *instance)
{
    const Node__Driving *driving = instance_driving(daemon, instance);
    const uint32_t streams = part_whole_streams(instance->demand);
    const bool measured = driving && driving->has_decode_mtok_per_s && driving->active >= streams;
    const double forecast =
        measured ? daemon_run_forecast(daemon, instance)->decode_tokens_per_s : 0;
    readings_add(daemon, ALERT_INSTANCE_SLOW, known_if(forecast > 0),
                 forecast > 0 ? driving->decode_mtok_per_s / 10.0 / forecast : 0, "%s",
                 instance->id);
}

/* It was placed on a machine that is not heard, and is nowhere else. */
static bool instance_misses_node(const struct daemon *daemon, const Cluster__Instance *instance)
{
    const Cluster__Placement *current = instance->active ? instance->current : NULL;
    for (size_t i = 0; current && i < current->n_stages; i++) {
        const struct peer *peer = daemon_peer(daemon, current->stages[i]->node);
        if (strcmp(current->stages[i]->node, daemon->id) != 0 &&
            (!peer || !peer->link || peer->is_silent))
            return true;
    }
    return false;
}

static void readings_of_instances(struct daemon *daemon)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    for (size_t i = 0; i < root->n_instances; i++) {
        const char *problem;
        const enum instance_phase phase = daemon_phase(daemon, root->instances[i], &problem);
        readings_add(daemon, ALERT_INSTANCE_UNHEALTHY, ALERT_KNOWN,
                     phase == INSTANCE_FAILED || instance_misses_node(daemon, root->instances[i]),
                     "%s", root->instances[i]->id);
        readings_of_speed(daemon, root->instances[i]);
    }
}

static void readings_of_tokens(struct daemon *daemon)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    const double now_ms = (double)daemon_wall_ms();
    for (size_t i = 0; i < root->n_tokens; i++) {
        const Cluster__Token *token = root->tokens[i];
        const double expires = (double)token->expires_ms;
        if (token->expires_ms && expires - (double)token->created_ms > TOKEN_LIFE_MS)
            readings_add(daemon, ALERT_TOKEN_ENDING, ALERT_KNOWN,
                         fmax(expires - now_ms, 0) / DAY_MS, "%s", token->name);
    }
}

static void readings_of_cluster(struct daemon *daemon)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    struct daemon_alerts *own = daemon->alerts;
    own->n_turns = own->n_readings = 0;
    for (size_t i = 0; i < root->n_nodes; i++) {
        if (root->nodes[i]->admitted)
            readings_of_node(daemon, root->nodes[i]->node);
    }
    readings_of_instances(daemon);
    readings_of_tokens(daemon);
    readings_of_followed(daemon);
    readings_flush(own, daemon_now_ms(daemon));
}

/* ---- what is proposed
 * ---------------------------------------------------------------------------- */

static void propose_raise(struct daemon *daemon, const struct alert_ask *ask)
{
    const struct alert_rule *rule = alert_rule(ask->kind);
    char name[ALERT_SUBJECT_TEXT], text[512];
    Cluster__Alert alert = CLUSTER__ALERT__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    alert_subject_words(daemon, rule->about, ask->subject, name, sizeof name);
    alert_say(rule, name, ask->value, text, sizeof text);
    alert.kind = (char *)(uintptr_t)rule->name;
    alert.subject = (char *)(uintptr_t)ask->subject;
    alert.has_critical = alert.has_raised_ms = true;
    alert.critical = rule->severity == ALERT_CRITICAL;
    alert.raised_ms = daemon_wall_ms();
    alert.text = text;
    alert.mend = (char *)(uintptr_t)rule->mend;
    event.kind_case = CLUSTER__EVENT__KIND_ALERT_RAISED;
    event.alert_raised = &alert;
    agreement_propose(daemon->agreement, &event, NULL, NULL);
}

static void propose_clear(struct daemon *daemon, const struct alert_ask *ask)
{
    Cluster__AlertCleared cleared = CLUSTER__ALERT_CLEARED__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    cleared.kind = (char *)(uintptr_t)alert_rule(ask->kind)->name;
    cleared.subject = (char *)(uintptr_t)ask->subject;
    cleared.why = (char *)(uintptr_t)ask->why;
    event.kind_case = CLUSTER__EVENT__KIND_ALERT_CLEARED;
    event.alert_cleared = &cleared;
    agreement_propose(daemon->agreement, &event, NULL, NULL);
}

/* Those of kinds that this version knows; what a newer leader has raised is for such a one. */
static uint32_t list_agreed(const struct daemon *daemon, struct alert_agreed *out)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    uint32_t n = 0;
    for (size_t i = 0; i < root->n_alerts && n < LIMIT_ALERTS; i++) {
        const Cluster__Alert *alert = root->alerts[i];
        const enum alert_kind kind = alert_kind_find(alert->kind, strlen(alert->kind));
        if (kind != ALERT_KINDS && strlen(alert->subject) < ALERT_SUBJECT_TEXT)
            out[n++] = (struct alert_agreed){kind, alert->subject};
    }
    return n;
}

static void propose_alerts(struct daemon *daemon)
{
    static struct alert_agreed agreed[LIMIT_ALERTS];
    static struct alert_ask asks[PROPOSE_MAX];
    struct daemon_alerts *own = daemon->alerts;
    const uint32_t n_agreed = list_agreed(daemon, agreed);
    const uint32_t n =
        alert_asks_step(&own->asks, &own->machine, &own->mutes, agreed, n_agreed, own->turns,
                        own->n_turns, daemon_now_ms(daemon), asks, PROPOSE_MAX);
    for (uint32_t i = 0; i < n; i++) {
        if (asks[i].raises)
            propose_raise(daemon, &asks[i]);
        else
            propose_clear(daemon, &asks[i]);
    }
}

/* ---- leading
 * -------------------------------------------------------------------------------------- */

const Cluster__Alert *daemon_alert_of(const struct daemon *daemon, const Cluster__Event *event)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    const Cluster__AlertCleared *cleared = event->alert_cleared;
    if (event->kind_case == CLUSTER__EVENT__KIND_ALERT_RAISED)
        return event->alert_raised;
    if (event->kind_case != CLUSTER__EVENT__KIND_ALERT_CLEARED || !root || !cleared->kind ||
        !cleared->subject)
        return NULL;
    for (size_t i = root->n_cleared_alerts; i-- > 0;) {
        const Cluster__Alert *alert = root->cleared_alerts[i];
        if (strcmp(alert->kind, cleared->kind) == 0 &&
            strcmp(alert->subject, cleared->subject) == 0)
            return alert;
    }
    return NULL;
}

void daemon_alerts_applied(struct daemon *daemon, const Cluster__Event *event)
{
    const Cluster__Alert *alert = daemon_alert_of(daemon, event);
    if (alert && daemon->alert_hook && daemon->alerts->leads)
        alert_hook_send(daemon->alert_hook, daemon, alert,
                        event->kind_case == CLUSTER__EVENT__KIND_ALERT_CLEARED);
}

static bool was_lately(uint64_t time_ms, uint64_t wall_ms)
{
    return time_ms + TELL_AGAIN_MS > wall_ms;
}

/* The leader before may have died with these in its queue: they are told again. */
static void tell_again(const struct daemon *daemon)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    const uint64_t wall_ms = daemon_wall_ms();
    if (!daemon->alert_hook)
        return;
    for (size_t i = 0; i < root->n_cleared_alerts; i++) {
        if (was_lately(root->cleared_alerts[i]->cleared_ms, wall_ms))
            alert_hook_send(daemon->alert_hook, daemon, root->cleared_alerts[i], true);
    }
    for (size_t i = 0; i < root->n_alerts; i++) {
        if (was_lately(root->alerts[i]->raised_ms, wall_ms))
            alert_hook_send(daemon->alert_hook, daemon, root->alerts[i], false);
    }
}

/* What another leader has raised is up; it is cleared as it would have been there. */
static void begin_leading(struct daemon *daemon)
{
    static struct alert_agreed agreed[LIMIT_ALERTS];
    struct daemon_alerts *own = daemon->alerts;
    const uint32_t n = list_agreed(daemon, agreed);
    alerts_init(&own->machine);
    own->asks = (struct alert_asks){0};
    own->began_ms = daemon_now_ms(daemon);
    for (uint32_t i = 0; i < n; i++)
        alerts_adopt(&own->machine, agreed[i].kind, agreed[i].subject, own->began_ms);
    tell_again(daemon);
}

void daemon_alerts_step(struct daemon *daemon)
{
    struct daemon_alerts *own = daemon->alerts;
    const uint64_t now = daemon_now_ms(daemon);
    const bool leads = daemon->is_member && lead_is(daemon->lead) && daemon_state(daemon)->root;
    if (!leads || state_level(daemon_state(daemon)) < EVENT_ROW_ALERT_CLEARED) {
        own->leads = false; /* or some member would not know what is raised */
        return;
    }
    if (own->leads && now - own->stepped_ms < STEP_MS)
        return;
    if (!own->leads)
        begin_leading(daemon);
    own->leads = true;
    own->stepped_ms = now;
    daemon_alerts_settings(daemon, &own->machine, &own->mutes);
    readings_of_cluster(daemon);
    propose_alerts(daemon);
}
