/* The leader's: who is a member, and who votes. */
#include "agreement/agreement_impl.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

void agreement_set_members(struct agreement *a, const struct member_view *views, uint32_t n)
{
    if (a->closing || a->forgetting)
        return;
    struct member_view *copy = mem_resize(a->views, n, sizeof *copy);
    if (!copy)
        return; /* the older list stays; the next call is soon */
    if (n)
        memcpy(copy, views, n * sizeof *copy);
    a->views = copy;
    a->n_views = n;
    a->members_due = true;
    if (a->last.leads)
        agreement_wake(a);
}

static void look_who_has_caught_up(struct agreement *a, const struct replica_status *status)
{
    for (uint32_t i = 0; i < a->n_views; i++) {
        const uint64_t match = replica_match(a->replica, a->views[i].id);
        a->views[i].caught_up =
            a->views[i].id == a->member || (match && match + LIMIT_CLUSTER_BATCH >= status->last);
    }
}

/* Refused for now: tried again in a second. */
static void take_step(struct agreement *a)
{
    struct error err;
    uint64_t heir;
    enum error_code code = ERROR_NONE;
    replica_members(a->replica, &a->members);
    if (members_next(&a->members, a->views, a->n_views, a->member, &a->members_wanted, &heir)) {
        code = replica_change_members(a->replica, agreement_now_ms(), &a->members_wanted, &err);
        a->members_pause_ms =
            agreement_now_ms() + (code ? 0 : members_pause_ms(&a->members, &a->members_wanted));
    } else if (heir)
        code = replica_hand_over(a->replica, agreement_now_ms(), heir, &err);
    if (code)
        log_line(LOG_DEBUG, "cluster", "members: %s", err.text);
}

void agreement_step_members(struct agreement *a)
{
    const uint64_t now_ms = agreement_now_ms();
    if (!a->replica || !a->n_views || (!a->members_due && now_ms < a->members_ms) ||
        now_ms < a->members_pause_ms)
        return;
    const struct replica_status status = replica_status(a->replica);
    if (!status.leads)
        return;
    a->members_due = false;
    a->members_ms = now_ms + a->options.step_ms;
    if (status.members_pending)
        return; /* when it counts, this is due again */
    look_who_has_caught_up(a, &status);
    take_step(a);
}

uint64_t agreement_members_timer(const struct agreement *a)
{
    const uint64_t due = a->members_ms > a->members_pause_ms ? a->members_ms : a->members_pause_ms;
    return a->replica && a->n_views && a->last.leads ? due : UINT64_MAX;
}
