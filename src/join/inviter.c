/* The member that lets a machine in. */
#include "base/limits.h"
#include "join/join_grant.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

enum { AWAIT_HELLO = 1, AWAIT_PROOF, AWAIT_PERSONS, DECIDING, AWAIT_DONE };

static enum join_result inviter_send_refusal(struct inviter *inviter, enum join_refusal reason,
                                             struct buffer *reply)
{
    return join_fail(&inviter->session, reason, "", reply);
}

static enum join_result inviter_broken(struct inviter *inviter, struct buffer *reply,
                                       struct error *err, const char *what)
{
    error_set(err, ERROR_INVALID, "%s", what);
    return inviter_send_refusal(inviter, JOIN_REFUSED_BROKEN, reply);
}

static enum join_result inviter_sent(struct inviter *inviter, int state, uint64_t deadline_ms,
                                     enum join_result result, struct buffer *reply,
                                     struct error *err)
{
    if (reply->failed) {
        error_set(err, ERROR_NO_MEMORY, "out of memory");
        return inviter_send_refusal(inviter, 0, reply);
    }
    inviter->session.state = state;
    inviter->deadline_ms = deadline_ms;
    return result;
}

enum error_code inviter_init(struct inviter *inviter, const struct inviter_settings *settings,
                             uint64_t now_ms, struct error *err)
{
    *inviter = (struct inviter){.identity = settings->identity,
                                .authority = settings->authority,
                                .invite = settings->invite,
                                .deadline_ms = now_ms + LIMIT_JOIN_STEP_MS};
    if (!join_name_is_valid(settings->name, strlen(settings->name)))
        return error_set(err, ERROR_INVALID,
                         "the node's name must be 1 to 63 letters, digits, or one of . _ -");
    if (!settings->authority->key)
        return error_set(err, ERROR_UNSUPPORTED,
                         "this machine is a plain member: an admin of the cluster must let it in");
    if (sodium_init() < 0)
        return error_set(err, ERROR_INTERNAL, "libsodium cannot start");
    memcpy(inviter->name, settings->name, strlen(settings->name));
    memcpy(inviter->session.binding, settings->binding, sizeof inviter->session.binding);
    inviter->session.state = AWAIT_HELLO;
    return ERROR_NONE;
}

/* ---- HELLO ---------------------------------------------------------------------------------- */

/* Is a code open at this moment, and may it be tried? */
static bool may_try(struct inviter *inviter, uint64_t now_ms, enum join_refusal *reason,
                    struct error *err)
{
    *reason = 0;
    if (invite_look(inviter->invite, now_ms) != INVITE_OPEN) {
        *reason = JOIN_REFUSED_NO_CODE;
        error_set(err, ERROR_NOT_FOUND, "%s tried a join code, but none is open",
                  inviter->peer_name);
    } else if (invite_is_paused(inviter->invite, now_ms)) {
        *reason = JOIN_REFUSED_BUSY;
        error_set(err, ERROR_BUSY, "%s tried a join code too soon after a wrong one",
                  inviter->peer_name);
    }
    return !*reason;
}

static bool make_share(struct inviter *inviter, uint64_t now_ms, enum join_refusal *reason,
                       struct error *err)
{
    struct join_session *session = &inviter->session;
    if (session->mode == JOIN_BY_CODE) {
        if (!may_try(inviter, now_ms, reason, err))
            return false;
        *reason = JOIN_REFUSED_DECLINED;
        error_set(err, ERROR_INTERNAL, "libsodium refused to make a share");
        return join_session_share(session, inviter->invite->digits, session->inviter_share);
    }
    *reason = JOIN_REFUSED_BUSY;
    error_set(err, ERROR_BUSY, "%s asked to be let in too soon after another machine",
              inviter->peer_name);
    if (!join_knock(&inviter->invite->hand_paused_until_ms, now_ms))
        return false;
    randombytes_buf(session->inviter_share, sizeof session->inviter_share); /* its nonce */
    return true;
}

static enum join_result on_hello(struct inviter *inviter, uint64_t now_ms,
                                 const struct join_message *message, struct buffer *reply,
                                 struct error *err)
{
    const struct join_field *fields = message->fields;
    struct join_session *session = &inviter->session;
    enum join_refusal reason;
    session->mode = (enum join_mode)fields[0].bytes[0];
    if (session->mode != JOIN_BY_CODE && session->mode != JOIN_BY_HAND)
        return inviter_broken(inviter, reply, err, "it wants to join in an unknown way");
    memcpy(inviter->peer_public_key, fields[1].bytes, PUBLIC_KEY_BYTES);
    node_id_of(inviter->peer_public_key, inviter->peer_id);
    memcpy(session->joiner_share, fields[2].bytes, sizeof session->joiner_share);
    memcpy(inviter->peer_name, fields[3].bytes, fields[3].size);
    inviter->peer_name[fields[3].size] = 0;
    if (!make_share(inviter, now_ms, &reason, err))
        return inviter_send_refusal(inviter, reason, reply);
    join_message_begin(reply, JOIN_ANSWER);
    join_message_field(reply, inviter->authority->cluster_id, CLUSTER_ID_BYTES);
    join_message_field(reply, inviter->identity->node_id, NODE_ID_BYTES);
    join_message_field(reply, session->inviter_share, sizeof session->inviter_share);
    join_message_field(reply, inviter->name, strlen(inviter->name));
    enum join_result result =
        inviter_sent(inviter, AWAIT_PROOF, now_ms + LIMIT_JOIN_STEP_MS, JOIN_WAITING, reply, err);
    if (result == JOIN_WAITING)
        join_digest(reply->data, reply->size, session->answer);
    return result;
}

/* ---- PROOF ---------------------------------------------------------------------------------- */

static enum join_result accept_joiner(struct inviter *inviter, uint64_t now_ms,
                                      struct buffer *reply, struct error *err)
{
    uint8_t tag[CPACE_TAG_BYTES];
    bool by_code = inviter->session.mode == JOIN_BY_CODE;
    join_session_tag(&inviter->session, INVITER, tag);
    join_message_begin(reply, JOIN_ACCEPT);
    join_message_field(reply, tag, sizeof tag);
    return inviter_sent(inviter, by_code ? DECIDING : AWAIT_PERSONS, now_ms + LIMIT_JOIN_WAIT_MS,
                        by_code ? JOIN_DECIDE : JOIN_COMPARE, reply, err);
}

/* The code is looked at anew: it may have been used, voided or paused by others since HELLO. */
static enum join_result check_code(struct inviter *inviter, uint64_t now_ms,
                                   const uint8_t proof[32], struct buffer *reply, struct error *err)
{
    uint8_t tag[CPACE_TAG_BYTES];
    enum join_refusal reason;
    if (!may_try(inviter, now_ms, &reason, err))
        return inviter_send_refusal(inviter, reason, reply);
    if (!join_session_key(&inviter->session, INVITER))
        return inviter_broken(inviter, reply, err, "its share is not a point of the group");
    join_session_tag(&inviter->session, JOINER, tag);
    bool right = sodium_memcmp(tag, proof, sizeof tag) == 0;
    sodium_memzero(tag, sizeof tag);
    if (!right) {
        invite_wrong(inviter->invite, now_ms);
        error_set(err, ERROR_INVALID, "%s tried a wrong join code (attempt %u of %d%s)",
                  inviter->peer_name, inviter->invite->n_wrong, LIMIT_JOIN_WRONG,
                  inviter->invite->state == INVITE_VOID ? ": the code is void now" : "");
        return inviter_send_refusal(inviter, JOIN_REFUSED_CODE, reply);
    }
    invite_use(inviter->invite);
    return accept_joiner(inviter, now_ms, reply, err);
}

static enum join_result check_nonce(struct inviter *inviter, uint64_t now_ms,
                                    const uint8_t nonce[32], struct buffer *reply,
                                    struct error *err)
{
    uint8_t commitment[32];
    join_commitment(nonce, commitment);
    if (sodium_memcmp(commitment, inviter->session.joiner_share, sizeof commitment) != 0)
        return inviter_broken(inviter, reply, err, "it did not open what it had committed to");
    join_session_words(&inviter->session, nonce);
    return accept_joiner(inviter, now_ms, reply, err);
}

static enum join_result on_proof(struct inviter *inviter, uint64_t now_ms,
                                 const struct join_message *message, struct buffer *reply,
                                 struct error *err)
{
    if (!join_session_verify(&inviter->session, inviter->peer_public_key, message->fields[1].bytes))
        return inviter_broken(inviter, reply, err,
                              "it does not have the private key of the node that it says it is");
    if (inviter->session.mode == JOIN_BY_CODE)
        return check_code(inviter, now_ms, message->fields[0].bytes, reply, err);
    return check_nonce(inviter, now_ms, message->fields[0].bytes, reply, err);
}

/* ---- both agree, by hand -------------------------------------------------------------------- */

static bool is_note(const struct inviter *inviter, const struct join_message *message)
{
    uint8_t tag[CPACE_TAG_BYTES];
    join_session_note(&inviter->session, message->type, tag);
    bool right = sodium_memcmp(tag, message->fields[0].bytes, sizeof tag) == 0;
    sodium_memzero(tag, sizeof tag);
    return right;
}

static enum join_result both_agree(struct inviter *inviter, uint64_t now_ms)
{
    if (!inviter->we_agree || !inviter->they_agree)
        return JOIN_WAITING;
    inviter->session.state = DECIDING;
    inviter->deadline_ms = now_ms + LIMIT_JOIN_WAIT_MS;
    return JOIN_DECIDE;
}

enum join_result inviter_agree(struct inviter *inviter, uint64_t now_ms)
{
    if (inviter->session.state != AWAIT_PERSONS)
        return inviter->session.state == JOIN_STATE_FAILED ? JOIN_FAILED : JOIN_WAITING;
    inviter->we_agree = true;
    return both_agree(inviter, now_ms);
}

/* ---- GRANT ---------------------------------------------------------------------------------- */

enum join_result inviter_grant(struct inviter *inviter, const struct join_grant *grant,
                               uint64_t now_ms, uint64_t now_unix_s, struct buffer *reply,
                               struct error *err)
{
    buffer_clear(reply);
    if (inviter->session.state == JOIN_STATE_FAILED)
        return JOIN_FAILED;
    assert(inviter->session.state == DECIDING);
    if (join_grant_make(&inviter->session, inviter->authority, inviter->peer_public_key, grant,
                        now_unix_s, reply, err))
        return inviter_send_refusal(inviter, JOIN_REFUSED_DECLINED, reply);
    return inviter_sent(inviter, AWAIT_DONE, now_ms + LIMIT_JOIN_STEP_MS, JOIN_WAITING, reply, err);
}

/* ---- the machine ---------------------------------------------------------------------------- */

static const char *inviter_peer_name(const struct inviter *inviter)
{
    return inviter->peer_name[0] ? inviter->peer_name : "the machine that wants to join";
}

enum join_result inviter_tick(struct inviter *inviter, uint64_t now_ms, struct buffer *reply,
                              struct error *err)
{
    int state = inviter->session.state;
    buffer_clear(reply);
    if (state == JOIN_STATE_FAILED)
        return JOIN_FAILED;
    if (state == JOIN_STATE_OVER || now_ms < inviter->deadline_ms)
        return state == JOIN_STATE_OVER ? JOIN_OVER : JOIN_WAITING;
    if (state == AWAIT_DONE)
        error_set(err, ERROR_CANCELLED,
                  "%s was let in but has not confirmed it: if it does not come up, remove it",
                  inviter_peer_name(inviter));
    else
        error_set(err, ERROR_CANCELLED, "%s was not let in in time", inviter_peer_name(inviter));
    return inviter_send_refusal(inviter, JOIN_REFUSED_TIME, reply);
}

enum join_result inviter_refuse(struct inviter *inviter, const char *why, struct buffer *reply,
                                struct error *err)
{
    error_set(err, ERROR_CANCELLED, "%s was not let in", inviter_peer_name(inviter));
    return join_fail(&inviter->session, JOIN_REFUSED_DECLINED, why, reply);
}

static enum join_result on_note(struct inviter *inviter, uint64_t now_ms,
                                const struct join_message *message, struct buffer *reply,
                                struct error *err)
{
    if (!is_note(inviter, message))
        return inviter_broken(inviter, reply, err, "its message was changed on its way");
    if (message->type == JOIN_AGREE) {
        inviter->they_agree = true;
        return both_agree(inviter, now_ms);
    }
    sodium_memzero(&inviter->session, sizeof inviter->session);
    inviter->session.state = JOIN_STATE_OVER;
    return JOIN_OVER;
}

enum join_result inviter_step(struct inviter *inviter, uint64_t now_ms, const void *bytes,
                              size_t size, struct buffer *reply, struct error *err)
{
    struct join_message message;
    enum join_result result = inviter_tick(inviter, now_ms, reply, err);
    if (result != JOIN_WAITING)
        return result;
    if (join_message_read(bytes, size, &message, err))
        return inviter_send_refusal(inviter, JOIN_REFUSED_BROKEN, reply);
    if (message.type == JOIN_REFUSE) {
        join_refusal_read(&message, inviter_peer_name(inviter), err);
        return inviter_send_refusal(inviter, 0, reply);
    }
    int state = inviter->session.state;
    if (state == AWAIT_HELLO && message.type == JOIN_HELLO) {
        join_digest(bytes, size, inviter->session.hello);
        return on_hello(inviter, now_ms, &message, reply, err);
    }
    if (state == AWAIT_PROOF && message.type == JOIN_PROOF)
        return on_proof(inviter, now_ms, &message, reply, err);
    if ((state == AWAIT_PERSONS && message.type == JOIN_AGREE && !inviter->they_agree) ||
        (state == AWAIT_DONE && message.type == JOIN_DONE))
        return on_note(inviter, now_ms, &message, reply, err);
    return inviter_broken(inviter, reply, err, "it sent a message that is not its turn's");
}

void inviter_deinit(struct inviter *inviter)
{
    if (inviter)
        sodium_memzero(inviter, sizeof *inviter);
}
