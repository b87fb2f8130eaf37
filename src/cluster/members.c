#include "cluster/members.h"

#include <assert.h>
#include <string.h>

/* libraft's encoding (raft_configuration_encode): a byte 1, the number of servers in 8
 * little-endian bytes, then for each its id in 8 bytes, its address with a NUL, its role in one
 * byte (0 stand-by, 1 voter, 2 spare); zeros up to a multiple of 8. Its decoder reads past the end
 * of what is cut off, so nothing reaches it that was not accepted here. */
enum { ENCODING = 1, STANDBY = 0, VOTER = 1, ADDRESS_MAX = 32 };

static uint64_t little_endian(const uint8_t *bytes)
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

/* One server; 0: it is not one, else its bytes. */
static size_t decode_member(const uint8_t *bytes, size_t size, struct member *out)
{
    if (size < 8)
        return 0;
    const uint8_t *end = memchr(bytes + 8, 0, size - 8 < ADDRESS_MAX ? size - 8 : ADDRESS_MAX);
    const size_t used = end ? (size_t)(end - bytes) + 2 : 0;
    if (!used || used > size || bytes[used - 1] > VOTER)
        return 0;
    *out = (struct member){.id = little_endian(bytes), .votes = bytes[used - 1] == VOTER};
    return out->id ? used : 0;
}

/* libraft also refuses two with one address; ours is the id in digits, so that comes to the
 * same. */
static bool address_is_id(const uint8_t *bytes, uint64_t id)
{
    char digits[24];
    size_t n = sizeof digits - 1;
    digits[n] = 0;
    for (; id; id /= 10)
        digits[--n] = (char)('0' + id % 10);
    return strcmp((const char *)bytes, digits + n) == 0;
}

/* Ids seen so far, hashed; zeroed: none. */
struct seen {
    uint64_t ids[2 * LIMIT_CLUSTER_NODES];
};

static bool seen_before(struct seen *seen, uint64_t id)
{
    enum { SLOTS = sizeof seen->ids / sizeof *seen->ids };
    size_t at = (size_t)((id * 0x9e3779b97f4a7c15u) >> 40) % SLOTS;
    for (; seen->ids[at]; at = (at + 1) % SLOTS) {
        if (seen->ids[at] == id)
            return true;
    }
    seen->ids[at] = id;
    return false;
}

enum error_code members_decode(const uint8_t *bytes, size_t size, struct members *out,
                               struct error *err)
{
    out->n = 0;
    if (size < 9 || bytes[0] != ENCODING)
        return error_set(err, ERROR_INVALID, "members: not a list of members");
    const uint64_t n = little_endian(bytes + 1);
    if (n == 0 || n > LIMIT_CLUSTER_NODES)
        return error_set(err, ERROR_INVALID, "members: a list of %llu; 1 to %d are possible",
                         (unsigned long long)n, LIMIT_CLUSTER_NODES);
    size_t at = 9;
    struct seen seen = {0};
    for (uint32_t i = 0; i < n; i++) {
        struct member member;
        const size_t used = decode_member(bytes + at, size - at, &member);
        if (!used || !address_is_id(bytes + at + 8, member.id) || seen_before(&seen, member.id)) {
            out->n = 0;
            return error_set(err, ERROR_INVALID,
                             "members: number %u is cut off, repeated or invalid", i);
        }
        out->list[out->n++] = member;
        at += used;
    }
    if (members_voters(out) == 0) {
        out->n = 0;
        return error_set(err, ERROR_INVALID, "members: nobody votes");
    }
    return ERROR_NONE;
}

const struct member *members_find(const struct members *members, uint64_t id)
{
    for (uint32_t i = 0; i < members->n; i++) {
        if (members->list[i].id == id)
            return &members->list[i];
    }
    return NULL;
}

uint32_t members_voters(const struct members *members)
{
    assert(members->n <= LIMIT_CLUSTER_NODES);
    uint32_t n = 0;
    for (uint32_t i = 0; i < members->n; i++)
        n += members->list[i].votes;
    return n;
}

uint32_t members_voters_wanted(uint32_t nodes)
{
    return nodes == 0 ? 0 : nodes < 3 ? 1 : nodes < 5 ? 3 : 5;
}

static bool votes(const struct members *members, uint64_t id)
{
    const struct member *member = members_find(members, id);
    return member && member->votes;
}

enum error_code members_check_step(const struct members *from, const struct members *to,
                                   uint64_t leader, struct error *err)
{
    assert(from != to && leader);
    uint32_t changed = 0;
    for (uint32_t i = 0; i < from->n; i++)
        changed += from->list[i].votes && !votes(to, from->list[i].id);
    for (uint32_t i = 0; i < to->n; i++) {
        changed += to->list[i].votes && !votes(from, to->list[i].id);
        if (to->list[i].id == 0 || members_find(to, to->list[i].id) != &to->list[i])
            return error_set(err, ERROR_INVALID, "members: a member has no id, or appears twice");
    }
    if (changed > 1)
        return error_set(err, ERROR_INVALID, "members: %u voters change at once; one is possible",
                         changed);
    /* libraft keeps what it knows of each member's log by the place in the list, and makes that
     * anew only when the number of members has changed (client.c, clientChangeConfiguration): one
     * that takes another's place would be taken to have the other's entries. */
    for (uint32_t i = 0; i < from->n && from->n == to->n; i++) {
        if (from->list[i].id != to->list[i].id)
            return error_set(err, ERROR_INVALID,
                             "members: one member replaces another in one step");
    }
    if (!votes(to, leader))
        return error_set(err, ERROR_INVALID, "members: the leader cannot take its own vote");
    return ERROR_NONE;
}

static const struct member_view *view_of(const struct member_view *views, uint32_t n, uint64_t id)
{
    for (uint32_t i = 0; i < n; i++) {
        if (views[i].id == id)
            return &views[i];
    }
    return NULL;
}

/* The member to get a vote: alive, caught up, steady before not, then the lowest id. NULL: none. */
static struct member *to_promote(struct members *members, const struct member_view *views,
                                 uint32_t n)
{
    assert(members->n <= LIMIT_CLUSTER_NODES);
    struct member *best = NULL;
    bool best_steady = false;
    for (uint32_t i = 0; i < members->n; i++) {
        struct member *member = &members->list[i];
        const struct member_view *view = view_of(views, n, member->id);
        if (member->votes || !view || !view->alive || !view->caught_up)
            continue;
        if (!best || (view->steady && !best_steady) ||
            (view->steady == best_steady && member->id < best->id))
            best = member, best_steady = view->steady;
    }
    return best;
}

/* The voter to lose it, but never the leader: dead before alive, unsteady before steady, then the
 * highest id. */
static struct member *to_demote(struct members *members, const struct member_view *views,
                                uint32_t n, uint64_t leader)
{
    assert(members->n <= LIMIT_CLUSTER_NODES && leader);
    struct member *worst = NULL;
    int worst_rank = 0;
    for (uint32_t i = 0; i < members->n; i++) {
        struct member *member = &members->list[i];
        const struct member_view *view = view_of(views, n, member->id);
        if (!member->votes || member->id == leader)
            continue;
        const int rank = !view ? 0 : !view->alive ? 1 : !view->steady ? 2 : 3;
        if (!worst || rank < worst_rank || (rank == worst_rank && member->id > worst->id))
            worst = member, worst_rank = rank;
    }
    return worst;
}

static bool remove_member(struct members *members, uint64_t id)
{
    assert(members->n && id);
    for (uint32_t i = 0; i < members->n; i++) {
        if (members->list[i].id == id) {
            members->list[i] = members->list[--members->n];
            return true;
        }
    }
    return false;
}

/* Members without a vote come and go freely, but not in one step (members_check_step). Voters that
 * nobody wants any more go one at a time. */
static bool follow_views(struct members *next, const struct member_view *views, uint32_t n,
                         uint64_t leader)
{
    assert(next->n <= LIMIT_CLUSTER_NODES && leader);
    const uint32_t before = next->n;
    bool changed = false, voter_gone = false;
    for (uint32_t i = next->n; i-- > 0;) {
        const struct member member = next->list[i];
        if (view_of(views, n, member.id) || member.id == leader || (member.votes && voter_gone))
            continue;
        voter_gone |= member.votes;
        changed |= remove_member(next, member.id);
    }
    for (uint32_t i = 0; i < n && next->n < LIMIT_CLUSTER_NODES && !changed; i++) {
        if (!members_find(next, views[i].id))
            next->list[next->n++] = (struct member){.id = views[i].id};
    }
    return changed || next->n != before;
}

static uint32_t alive_voters(const struct members *members, const struct member_view *views,
                             uint32_t n)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < members->n; i++) {
        const struct member_view *view = view_of(views, n, members->list[i].id);
        count += members->list[i].votes && view && view->alive;
    }
    return count;
}

/* A vote is given or taken; a dead voter is only replaced, after another has its vote. */
static bool move_vote(struct members *next, const struct member_view *views, uint32_t n,
                      uint64_t leader)
{
    /* A leader that is to go keeps its vote until it has handed over; it does not count. */
    const bool goes = !view_of(views, n, leader);
    const uint32_t wanted = members_voters_wanted(n), voters = members_voters(next) - goes;
    struct member *up = to_promote(next, views, n), *down = to_demote(next, views, n, leader);
    const uint32_t alive = alive_voters(next, views, n);
    if (up && (voters < wanted || (voters == wanted && alive < wanted))) {
        up->votes = true;
        return true;
    }
    if (down && voters > wanted) {
        down->votes = false;
        return true;
    }
    return false;
}

bool members_next(const struct members *now, const struct member_view *views, uint32_t n_views,
                  uint64_t leader, struct members *next, uint64_t *hand_over)
{
    assert(now != next && leader);
    *next = *now;
    *hand_over = 0;
    if (follow_views(next, views, n_views, leader) || move_vote(next, views, n_views, leader))
        return true;
    if (view_of(views, n_views, leader))
        return false;
    for (uint32_t i = 0; i < now->n && !*hand_over; i++) {
        const struct member_view *view = view_of(views, n_views, now->list[i].id);
        if (now->list[i].votes && view && view->alive && view->caught_up)
            *hand_over = view->id;
    }
    assert(*hand_over != leader); /* it is in no view */
    return false;
}

uint64_t members_pause_ms(const struct members *before, const struct members *after)
{
    assert(before != after);
    enum { FEW = 64, EACH_MS = 10 };
    return after->n <= FEW || after->n == before->n ? 0 : (uint64_t)after->n * EACH_MS;
}
