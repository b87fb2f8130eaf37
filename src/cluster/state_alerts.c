/* Events of alerts: what is up, and what was up lately.
 *
 * Invariants: of a kind and a subject one alert is up, at most; no record is larger than
 * LIMIT_ALERT_BYTES. So a leader that did not know that another had raised one changes nothing by
 * raising it again. */
#include "cluster/state_impl.h"

#include "base/limits.h"

#include <assert.h>
#include <string.h>

static Cluster__Alert *state_alerts_find(const Cluster__State *s, const char *kind,
                                         const char *subject, size_t *at)
{
    for (size_t i = 0; i < s->n_alerts; i++) {
        if (same_text(s->alerts[i]->kind, kind) && same_text(s->alerts[i]->subject, subject)) {
            *at = i;
            return s->alerts[i];
        }
    }
    return NULL;
}

static const char *check_alert(const Cluster__Alert *alert)
{
    if (!good_text(alert->kind) || !good_text(alert->subject))
        return "the alert has no kind or subject";
    if (protobuf_c_message_get_packed_size(&alert->base) > LIMIT_ALERT_BYTES)
        return "the alert's record is too large";
    return NULL;
}

const char *apply_alert_raised(Cluster__State *s, Cluster__Event *e)
{
    Cluster__Alert *alert = e->alert_raised;
    const char *reason = check_alert(alert);
    size_t at;
    if (reason)
        return reason;
    if (alert->has_cleared_ms || alert->why)
        return "the alert is over already";
    if (state_alerts_find(s, alert->kind, alert->subject, &at))
        return "that alert is up already";
    if (s->n_alerts >= LIMIT_ALERTS)
        return "there are too many alerts";
    if (!list_reserve(&s->alerts, s->n_alerts))
        return no_memory;
    LIST_ADD(s->alerts, s->n_alerts, alert);
    e->alert_raised = NULL;
    assert(s->n_alerts <= LIMIT_ALERTS);
    return NULL;
}

const char *apply_alert_cleared(Cluster__State *s, Cluster__Event *e)
{
    Cluster__AlertCleared *cleared = e->alert_cleared;
    size_t at;
    Cluster__Alert *alert = state_alerts_find(s, cleared->kind, cleared->subject, &at);
    if (!alert)
        return "there is no such alert";
    if (cleared->why && strlen(cleared->why) > LIMIT_CLUSTER_ID_BYTES)
        return "the reason is too long";
    if (s->n_cleared_alerts < LIMIT_ALERTS_CLEARED &&
        !list_reserve(&s->cleared_alerts, s->n_cleared_alerts))
        return no_memory;
    if (s->n_cleared_alerts >= LIMIT_ALERTS_CLEARED)
        list_remove(&s->cleared_alerts, &s->n_cleared_alerts, 0);
    memmove(s->alerts + at, s->alerts + at + 1, (--s->n_alerts - at) * sizeof *s->alerts);
    alert->has_cleared_ms = true;
    alert->cleared_ms = e->time_ms;
    alert->why = cleared->why;
    cleared->why = NULL;
    LIST_ADD(s->cleared_alerts, s->n_cleared_alerts, alert);
    assert(s->n_cleared_alerts <= LIMIT_ALERTS_CLEARED);
    return NULL;
}

bool good_alerts(const Cluster__State *s)
{
    if (s->n_alerts > LIMIT_ALERTS || s->n_cleared_alerts > LIMIT_ALERTS_CLEARED)
        return false;
    for (size_t i = 0; i < s->n_alerts; i++) {
        size_t at;
        if (check_alert(s->alerts[i]) || s->alerts[i]->has_cleared_ms ||
            state_alerts_find(s, s->alerts[i]->kind, s->alerts[i]->subject, &at) != s->alerts[i])
            return false;
    }
    for (size_t i = 0; i < s->n_cleared_alerts; i++) {
        if (!good_text(s->cleared_alerts[i]->kind) || !good_text(s->cleared_alerts[i]->subject) ||
            !s->cleared_alerts[i]->has_cleared_ms)
            return false;
    }
    return true;
}

/* ---- questions ---- */

const Cluster__Alert *state_alert(const struct state *state, const char *kind, const char *subject)
{
    size_t at;
    return state->root ? state_alerts_find(state->root, kind, subject, &at) : NULL;
}
