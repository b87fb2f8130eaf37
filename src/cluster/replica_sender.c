/* Who may say what to this log. libraft believes whatever it is handed, from whomever: Raft is for
 * machines that crash, not for those that lie. So a message is held against what is known here of
 * its sender before libraft sees it.
 *
 * Elections and leadership are the voters' (Ongaro, section 4.1). Who votes is judged by our latest
 * list, which may be older than the sender's: a server must also hear those that are not in its
 * own. That can matter only while no leader of our own list is heard, since such a leader would
 * bring us the newer one. So who does not vote in our list is heard once that has lasted for
 * STRANGER_ELECTIONS. A node without any list hears whoever speaks first, and then that one.
 *
 * What is left to one who votes and lies is in docs/SECURITY.md. */
#include "cluster/replica_impl.h"

#include "base/limits.h"

#include <assert.h>

enum {
    STRANGER_ELECTIONS = 5, /* without a leader, before one who does not vote here may be one */
    STEP_TERMS = 64,        /* ahead, as after elections that were not heard of: no leap */
    TERM_ELECTIONS = 30,    /* between two terms that a leader takes from those without a vote */
};

enum standing { STRANGER, MEMBER, VOTER };

static enum standing replica_standing(const struct replica *r, uint64_t id)
{
    const struct raft_configuration *list = &r->raft.configuration;
    for (unsigned i = 0; i < list->n; i++) {
        if (list->servers[i].id == id)
            return list->servers[i].role == RAFT_VOTER ? VOTER : MEMBER;
    }
    return STRANGER;
}

bool replica_is_listed(const struct replica *r, uint64_t id)
{
    return replica_standing(r, id) != STRANGER;
}

bool replica_is_silent(const struct replica *r, unsigned elections)
{
    assert(r->now_ms >= r->leader_heard_ms);
    return r->now_ms - r->leader_heard_ms > (uint64_t)elections * r->options.election_ms;
}

/* Without any list, and before anybody was heard that leads. A first snapshot brings a list only
 * when it is durable. */
static bool replica_knows_nobody(const struct replica *r)
{
    return !r->raft.configuration.n && !r->leader.id;
}

static bool replica_may_stand(const struct replica *r, uint64_t from)
{
    return replica_knows_nobody(r) || replica_standing(r, from) == VOTER ||
           replica_is_silent(r, STRANGER_ELECTIONS);
}

enum error_code replica_refuse(struct error *err, uint64_t from, const char *why)
{
    return error_set(err, ERROR_INVALID, "replica: refused a message of member %016llx: %s",
                     (unsigned long long)from, why);
}

/* It may be honest all the same: its list is newer than ours, or the message is late. */
enum error_code replica_turn_away(struct error *err, uint64_t from, const char *why)
{
    return error_set(err, ERROR_BUSY, "replica: did not take a message of member %016llx: %s",
                     (unsigned long long)from, why);
}

/* Terms only grow, and end somewhere (wire.c). One message that took us to the last of them would
 * end all elections for good. A log that was away for years is behind by the elections since: that
 * is one leap. */
static bool replica_term_leaps(struct replica *r, uint64_t term)
{
    const uint64_t pause_ms = (uint64_t)TERM_ELECTIONS * r->options.election_ms;
    const uint64_t ahead = term > r->raft.current_term ? term - r->raft.current_term : 0;
    if (replica_knows_nobody(r) || ahead <= STEP_TERMS)
        return false;
    return ahead > LIMIT_CLUSTER_TERM_LEAP || (r->leapt_ms && r->now_ms - r->leapt_ms < pause_ms);
}

/* Leader Completeness (Ongaro, figure 3.2): no leader is without what is committed. libraft ends
 * itself when it meets one. */
static bool replica_is_contradicted(const struct replica *r, uint64_t index, uint64_t term)
{
    const uint64_t own = replica_term_of(r, index);
    return index <= r->commit && own && own != term;
}

/* Election Safety (Ongaro, figure 3.2): one leader a term. The first whom we hear is it. We know
 * no better who has won, but for this: whom we have voted for may have. */
static enum error_code replica_check_leader(const struct replica *r, uint64_t from, uint64_t term,
                                            struct error *err)
{
    const uint64_t current = r->raft.current_term;
    if (term < current)
        return ERROR_NONE; /* is told our term, and nothing else comes of it */
    if (term == current && r->leader.term == term)
        return r->leader.id == from ? ERROR_NONE
                                    : replica_refuse(err, from, "another leads in that term");
    if ((term == current && r->raft.voted_for == from) || replica_may_stand(r, from))
        return ERROR_NONE;
    return replica_turn_away(err, from, "it leads, it says, but has no vote");
}

enum error_code replica_check_snapshot(const struct replica *r, uint64_t from,
                                       struct lineage lineage, const struct log_snapshot *snapshot,
                                       struct error *err)
{
    const struct replica_options *o = &r->options;
    struct error why = {0};
    if (log_last(&r->log) && snapshot->index > log_last(&r->log) + LIMIT_CLUSTER_INDEX_LEAP)
        return replica_refuse(err, from, "its snapshot is too far ahead");
    const enum error_code code = o->check_state ? o->check_state(o->self, lineage, snapshot->state,
                                                                 snapshot->state_size, &why)
                                                : ERROR_NONE;
    if (code == ERROR_NO_MEMORY)
        return error_set(err, code, "replica: %s", why.text);
    return code ? replica_refuse(err, from, why.text) : ERROR_NONE;
}

static enum error_code replica_check_append(const struct replica *r, uint64_t from,
                                            const struct wire_append *append, struct error *err)
{
    const struct log *entries = &append->entries;
    const enum error_code code = replica_check_leader(r, from, append->term, err);
    if (code || append->term < r->raft.current_term)
        return code;
    if ((uint64_t)r->log.n + entries->n > 2 * (uint64_t)LIMIT_CLUSTER_LOG_ENTRIES)
        return replica_refuse(err, from, "too many entries wait for a majority");
    bool contradicts = replica_is_contradicted(r, append->prev_index, append->prev_term);
    for (uint32_t i = 0; i < entries->n && !contradicts; i++)
        contradicts =
            replica_is_contradicted(r, append->prev_index + 1 + i, entries->entries[i].term);
    return contradicts ? replica_refuse(err, from, "it contradicts what is committed here")
                       : ERROR_NONE;
}

static enum error_code replica_check_install(struct replica *r, uint64_t from,
                                             const struct wire_install *install, struct error *err)
{
    const struct log_snapshot *snapshot = &install->snapshot;
    enum error_code code = replica_check_leader(r, from, install->term, err);
    if (code || install->term < r->raft.current_term)
        return code;
    if (replica_is_contradicted(r, snapshot->index, snapshot->term))
        return replica_refuse(err, from, "its snapshot contradicts what is committed here");
    return snapshot->index > r->commit ? replica_check_snapshot(r, from, r->lineage, snapshot, err)
                                       : ERROR_NONE;
}

/* Whoever hears of a higher term steps down (Ongaro, figure 3.1, "All servers"). An answer of one
 * who does not vote may do that to a leader, too: it may have stood for election when it had a
 * vote, and would never follow a lower term. But not at its pleasure. */
static enum error_code replica_check_answer(struct replica *r, uint64_t from, uint64_t term,
                                            struct error *err)
{
    const enum standing standing = replica_standing(r, from);
    const uint64_t pause_ms = (uint64_t)TERM_ELECTIONS * r->options.election_ms;
    if (standing == STRANGER)
        return replica_turn_away(err, from, "it was not asked");
    if (term <= r->raft.current_term || standing == VOTER)
        return ERROR_NONE;
    if (r->raised_ms && r->now_ms - r->raised_ms < pause_ms)
        return replica_refuse(err, from, "it has no vote, and says a higher term too often");
    r->raised_ms = r->now_ms;
    return ERROR_NONE;
}

/* Leadership is handed over by the leader, in its term (Ongaro, section 3.10). libraft would take
 * the term from anybody whom it once followed. */
static enum error_code replica_check_timeout_now(const struct replica *r, uint64_t from,
                                                 uint64_t term, struct error *err)
{
    if (r->leader.id == from && r->leader.term == term && r->raft.current_term == term)
        return ERROR_NONE;
    return replica_turn_away(err, from, "it does not lead, so it cannot hand over");
}

static uint64_t message_term(const struct wire_message *message)
{
    switch (message->type) {
    case WIRE_VOTE:
        return message->vote.term;
    case WIRE_VOTE_RESULT:
        return message->vote_result.term;
    case WIRE_APPEND:
        return message->append.term;
    case WIRE_APPEND_RESULT:
        return message->append_result.term;
    case WIRE_INSTALL:
        return message->install.term;
    case WIRE_TIMEOUT_NOW:
        return message->timeout_now.term;
    case WIRE_STATUS:
    case WIRE_UNKNOWN:
        break;
    }
    return 0;
}

static enum error_code replica_check_type(struct replica *r, uint64_t from,
                                          const struct wire_message *message, struct error *err)
{
    switch (message->type) {
    case WIRE_VOTE:
        return replica_may_stand(r, from)
                   ? ERROR_NONE
                   : replica_turn_away(err, from, "it stands without a vote");
    case WIRE_VOTE_RESULT:
        return r->raft.state != RAFT_CANDIDATE || replica_standing(r, from) == VOTER
                   ? ERROR_NONE
                   : replica_turn_away(err, from, "its vote was not asked for");
    case WIRE_APPEND:
        return replica_check_append(r, from, &message->append, err);
    case WIRE_INSTALL:
        return replica_check_install(r, from, &message->install, err);
    case WIRE_APPEND_RESULT:
        return r->raft.state != RAFT_LEADER
                   ? ERROR_NONE
                   : replica_check_answer(r, from, message->append_result.term, err);
    case WIRE_TIMEOUT_NOW:
        return replica_check_timeout_now(r, from, message->timeout_now.term, err);
    case WIRE_STATUS: /* is answered; only a member's is noted (replica_on_status()) */
    case WIRE_UNKNOWN:
        break;
    }
    return ERROR_NONE;
}

enum error_code replica_check_sender(struct replica *r, uint64_t from,
                                     const struct wire_message *message, struct error *err)
{
    const uint64_t term = message_term(message);
    assert(from && from != r->options.id && !lineage_compare(message->lineage, r->lineage));
    if (r->options.believes_anybody)
        return ERROR_NONE;
    if (replica_term_leaps(r, term))
        return replica_refuse(err, from, "its term is too far ahead");
    const enum error_code code = replica_check_type(r, from, message, err);
    if (!code && term > r->raft.current_term + STEP_TERMS)
        r->leapt_ms = r->now_ms;
    return code;
}

/* What libraft has taken: from now on that term is led by none but this. */
void replica_note_leader(struct replica *r, uint64_t from, uint64_t term)
{
    if (r->raft.current_term == term && r->raft.state == RAFT_FOLLOWER &&
        r->raft.follower_state.current_leader.id == from)
        r->leader.term = term, r->leader.id = from;
}
