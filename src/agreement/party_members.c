/* The leader's: who is a member, and who votes. */
#include "agreement/party_impl.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

void party_set_members(struct party *p, const struct member_view *views, uint32_t n)
{
    if (p->stopped || p->forgetting)
        return;
    struct member_view *copy = mem_resize(p->views, n, sizeof *copy);
    if (!copy)
        return; /* the older list stays; the next call is soon */
    if (n)
        memcpy(copy, views, n * sizeof *copy);
    p->views = copy;
    p->n_views = n;
    p->members_due = true;
}

/* Within one message of the leader's log (Ongaro, section 4.2.1: catching up in rounds). */
static void look_who_has_caught_up(struct party *p, const struct replica_status *status)
{
    assert(status->leads);
    for (uint32_t i = 0; i < p->n_views; i++) {
        const uint64_t match = replica_match(p->replica, p->views[i].id);
        p->views[i].caught_up =
            p->views[i].id == p->member || (match && match + LIMIT_CLUSTER_BATCH >= status->last);
    }
}

/* Refused for now: tried again in a second. */
static void take_members_step(struct party *p)
{
    assert(p->n_views && p->member);
    struct error err;
    uint64_t heir;
    enum error_code code = ERROR_NONE;
    replica_members(p->replica, &p->members);
    if (members_next(&p->members, p->views, p->n_views, p->member, &p->members_wanted, &heir)) {
        code = replica_change_members(p->replica, p->now_ms, &p->members_wanted, &err);
        p->members_pause_ms =
            p->now_ms + (code ? 0 : members_pause_ms(&p->members, &p->members_wanted));
    } else if (heir) {
        assert(heir != p->member);
        code = replica_hand_over(p->replica, p->now_ms, heir, &err);
    }
    if (code)
        party_say(p, LOG_DEBUG, "members: %s", err.text);
}

void party_step_members(struct party *p)
{
    if (!p->replica || !p->n_views || (!p->members_due && p->now_ms < p->members_ms) ||
        p->now_ms < p->members_pause_ms)
        return;
    const struct replica_status status = replica_status(p->replica);
    if (!status.leads)
        return;
    p->members_due = false;
    p->members_ms = p->now_ms + p->options.step_ms;
    if (status.members_pending)
        return; /* when it counts, this is due again */
    look_who_has_caught_up(p, &status);
    take_members_step(p);
}

uint64_t party_members_timer(const struct party *p)
{
    const uint64_t due = p->members_ms > p->members_pause_ms ? p->members_ms : p->members_pause_ms;
    return p->replica && p->n_views && p->last.leads ? due : UINT64_MAX;
}
