#include "node/early.h"

#include "agreement/agreement.h"
#include "base/limits.h"
#include "base/mem.h"
#include "node/daemon_state.h"

#include <assert.h>
#include <string.h>

struct early_asker {
    struct early_asker *next;
    char *name; /* NULL: none was given */
    void (*opened)(void *arg, struct daemon_text *text, const struct error *err);
    void *arg;
};

struct early {
    struct daemon *daemon;
    struct early_asker *askers; /* who came last is the last */
};

struct early *early_new(struct daemon *daemon)
{
    struct early *early = mem_new(sizeof *early);
    if (early)
        early->daemon = daemon;
    return early;
}

bool early_is(const struct daemon *daemon)
{
    const struct replica_status status = agreement_status(daemon->agreement);
    return !status.leader || status.applied < status.commit ||
           !state_node(daemon_state(daemon), daemon->id);
}

static bool early_waits(const struct daemon *daemon)
{
    return !daemon->stopping && early_is(daemon) &&
           daemon_now_ms(daemon) - daemon->opened_ms < LIMIT_EARLY_MS;
}

static void early_asker_free(struct early_asker *asker)
{
    if (asker)
        mem_free(asker->name);
    mem_free(asker);
}

bool early_takes(struct early *early, const char *name,
                 void (*opened)(void *arg, struct daemon_text *text, const struct error *err),
                 void *arg)
{
    struct early_asker **at = &early->askers;
    if (!early_waits(early->daemon))
        return false;
    struct early_asker *asker = mem_new(sizeof *asker);
    if (!asker || (name && !(asker->name = mem_copy_text(name, strlen(name))))) {
        early_asker_free(asker);
        return false;
    }
    asker->opened = opened;
    asker->arg = arg;
    while (*at)
        at = &(*at)->next;
    *at = asker;
    return true;
}

static struct early_asker *early_first(struct early *early)
{
    struct early_asker *asker = early->askers;
    assert(asker);
    early->askers = asker->next;
    return asker;
}

/* One at a time: who is answered may cancel another. None comes back, since nobody has to wait. */
void early_step(struct early *early)
{
    while (early && early->askers && !early_waits(early->daemon)) {
        struct early_asker *asker = early_first(early);
        daemon_open_model(early->daemon, asker->name, asker->opened, asker->arg);
        early_asker_free(asker);
    }
}

void early_cancel(struct early *early, void *arg)
{
    for (struct early_asker **at = &early->askers; *at;) {
        struct early_asker *asker = *at;
        if (asker->arg != arg) {
            at = &asker->next;
            continue;
        }
        *at = asker->next;
        early_asker_free(asker);
    }
}

void early_free(struct early *early, const struct error *why)
{
    while (early && early->askers) {
        struct early_asker *asker = early_first(early);
        asker->opened(asker->arg, NULL, why);
        early_asker_free(asker);
    }
    mem_free(early);
}
