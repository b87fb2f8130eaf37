/* What this node sees of itself and tells the leader: its disk, its certificates, its links beside
 * what is usual of them, its devices' processes and measurements. Only what is not good is told;
 * what is unknown only where that matters, since it was told just before, or its alert is up: of
 * most links something is unknown, and all of them are told of every other second. */
#include "node/daemon_alerts.h"

#include "gpu/gpu.h"
#include "hosting/hosting.h"
#include "node/daemon_state.h"
#include "node/peers.h"
#include "pipeline/children.h"
#include "trust/authority.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

enum { DEATHS_MS = 10 * 60 * 1000, DAY_S = 86400 };

struct own_tells {
    struct daemon *daemon;
    struct alerts lines; /* of which the lines are used */
    struct alert_mutes mutes;
    Node__AlertTell tells[LIMIT_ALERT_TELLS], *list[LIMIT_ALERT_TELLS];
    size_t n;
};

/* As was told last: this node's NOW. */
static bool own_was_told(const struct daemon *daemon, const struct alert_rule *rule,
                         const char *what)
{
    for (size_t i = 0; daemon->now && i < daemon->now->n_tells; i++) {
        const Node__AlertTell *tell = daemon->now->tells[i];
        if (strcmp(tell->kind, rule->name) == 0 &&
            (what ? tell->what && strcmp(tell->what, what) == 0 : !tell->what))
            return true;
    }
    return false;
}

static bool own_is_up(const struct daemon *daemon, const struct alert_rule *rule, const char *what)
{
    char subject[ALERT_SUBJECT_TEXT];
    snprintf(subject, sizeof subject, "%s%s%s", daemon->id,
             rule->about == ALERT_ABOUT_LINK ? ">"
             : what                          ? "/"
                                             : "",
             what ? what : "");
    return state_alert(daemon_state(daemon), rule->name, subject);
}

static void own_tell(struct own_tells *told, enum alert_kind kind, const char *what, bool known,
                     double value)
{
    const struct alert_rule *rule = alert_rule(kind);
    assert(rule->by_node);
    known = known && isfinite(value);
    const bool matters =
        known ? !alert_is_good(rule, &told->lines.lines[kind], value)
              : own_was_told(told->daemon, rule, what) || own_is_up(told->daemon, rule, what);
    if (told->n == LIMIT_ALERT_TELLS || !matters)
        return;
    Node__AlertTell *tell = told->list[told->n] = &told->tells[told->n];
    told->n++;
    node__alert_tell__init(tell);
    tell->kind = (char *)(uintptr_t)rule->name;
    tell->what = (char *)(uintptr_t)what;
    tell->has_value = known;
    tell->value = known ? value : 0;
}

static void tell_disk(struct daemon *daemon, struct own_tells *told)
{
    struct statvfs disk;
    const bool known = statvfs(daemon->folder, &disk) == 0 && disk.f_blocks;
    own_tell(told, ALERT_DISK_FULL, NULL, known,
             known ? 100 - 100 * (double)disk.f_bavail / (double)disk.f_blocks : 0);
}

static void tell_certificates(struct daemon *daemon, struct own_tells *told)
{
    const double now_s = (double)daemon_wall_ms() / 1000;
    const X509 *certificate = daemon->membership.certificate;
    uint64_t from_s, until_s = 0;
    const bool known = certificate && certificate_period(certificate, &from_s, &until_s);
    if (certificate)
        own_tell(told, ALERT_CERTIFICATE_ENDING, NULL, known, ((double)until_s - now_s) / DAY_S);
    if (daemon->api_until_s)
        own_tell(told, ALERT_API_CERTIFICATE_ENDING, NULL, true,
                 ((double)daemon->api_until_s - now_s) / DAY_S);
}

/* The time of the process: a device that has no process of its own takes the node along. */
static void tell_devices(struct daemon *daemon, struct own_tells *told)
{
    const struct gpu *gpu = daemon->options.gpu;
    const double now_s = (double)daemon_wall_ms() / 1000;
    for (uint32_t i = 0; gpu && i < gpu_device_count(gpu); i++) {
        const struct device *device = gpu_device(gpu, i);
        const struct device_calibration *calibration = device_calibration(device);
        const char *id = device_info(device)->id;
        own_tell(told, ALERT_MEMORY_SHORT, id, true, hosting_memory_step(daemon->hosting, id));
        if (daemon->options.children)
            own_tell(told, ALERT_DEVICE_DYING, id, true,
                     children_deaths(daemon->options.children, id, DEATHS_MS));
        if (calibration)
            own_tell(told, ALERT_CALIBRATION_STALE, id, calibration->unix_s,
                     (now_s - (double)calibration->unix_s) / DAY_S);
    }
}

static void tell_link(struct peer *peer, uint64_t now_ms, struct own_tells *told)
{
    const struct topology_link link =
        peer->link ? link_measured(peer->link) : (struct topology_link){0};
    struct link_worse worse[LINK_WORSE];
    link_usual_read(&peer->usual, &link, now_ms, worse);
    for (int i = 0; i < LINK_WORSE; i++)
        own_tell(told, worse[i].kind, peer->id, worse[i].known, worse[i].value);
}

void daemon_alerts_tell(struct daemon *daemon, Node__Now *now)
{
    static struct own_tells told; /* large, and the loop's alone */
    told.n = 0;
    told.daemon = daemon;
    daemon_alerts_settings(daemon, &told.lines, &told.mutes);
    tell_disk(daemon, &told);
    tell_certificates(daemon, &told);
    tell_devices(daemon, &told);
    for (struct peer *peer = daemon->peers; peer; peer = peer->next)
        tell_link(peer, daemon_now_ms(daemon), &told);
    now->has_tells_alerts = now->tells_alerts = true;
    now->has_wall_ms = true;
    now->wall_ms = daemon_wall_ms();
    now->tells = told.list;
    now->n_tells = told.n;
}
