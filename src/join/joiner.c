/* The machine that wants to become a member. */
#include "base/limits.h"
#include "join/join_grant.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

enum { AWAIT_ANSWER = 1, AWAIT_ACCEPT, AWAIT_PERSON, AWAIT_GRANT, STORING };

static enum join_result joiner_fail(struct joiner *joiner, enum join_refusal reason,
                                    struct buffer *reply)
{
    membership_deinit(&joiner->membership);
    return join_fail(&joiner->session, reason, "", reply);
}

static enum join_result joiner_broken(struct joiner *joiner, struct buffer *reply,
                                      struct error *err, const char *what)
{
    error_set(err, ERROR_INVALID, "%s", what);
    return joiner_fail(joiner, JOIN_REFUSED_BROKEN, reply);
}

/* After a message was written. */
static enum join_result joiner_sent(struct joiner *joiner, int state, uint64_t deadline_ms,
                                    enum join_result result, struct buffer *reply,
                                    struct error *err)
{
    if (reply->failed) {
        error_set(err, ERROR_NO_MEMORY, "out of memory");
        return joiner_fail(joiner, 0, reply);
    }
    joiner->session.state = state;
    joiner->deadline_ms = deadline_ms;
    return result;
}

/* ---- HELLO ---------------------------------------------------------------------------------- */

static enum error_code check_settings(const struct joiner_settings *settings, uint64_t now_ms,
                                      struct error *err)
{
    if (!join_name_is_valid(settings->name, strlen(settings->name)))
        return error_set(err, ERROR_INVALID,
                         "the node's name must be 1 to 63 letters, digits, or one of . _ -");
    if (sodium_init() < 0)
        return error_set(err, ERROR_INTERNAL, "libsodium cannot start");
    if (settings->mode == JOIN_BY_CODE && settings->pace->n_shown >= LIMIT_JOIN_GUESSES)
        return error_set(
            err, ERROR_BUSY,
            "%d machines did not know this code: name the member that made it, or get a new code",
            LIMIT_JOIN_GUESSES);
    if (settings->mode == JOIN_BY_HAND &&
        !join_knock(&settings->pace->hand_paused_until_ms, now_ms))
        return error_set(
            err, ERROR_BUSY,
            "this machine asked to be let in a moment ago; try again in a few seconds");
    return ERROR_NONE;
}

enum error_code joiner_start(struct joiner *joiner, const struct joiner_settings *settings,
                             uint64_t now_ms, struct buffer *reply, struct error *err)
{
    *joiner = (struct joiner){.identity = settings->identity, .pace = settings->pace};
    enum error_code code = check_settings(settings, now_ms, err);
    if (code)
        return code;
    struct join_session *session = &joiner->session;
    session->mode = settings->mode;
    memcpy(session->binding, settings->binding, sizeof session->binding);
    memcpy(joiner->name, settings->name, strlen(settings->name));
    if (session->mode == JOIN_BY_HAND) {
        randombytes_buf(session->own_secret, sizeof session->own_secret);
        join_commitment(session->own_secret, session->joiner_share);
    } else if (!join_session_share(session, settings->code, session->joiner_share)) {
        return error_set(err, ERROR_INTERNAL, "libsodium refused to make a share");
    }
    join_message_begin(reply, JOIN_HELLO);
    join_message_field(reply, &(uint8_t){(uint8_t)session->mode}, 1);
    join_message_field(reply, joiner->identity->public_key, PUBLIC_KEY_BYTES);
    join_message_field(reply, session->joiner_share, sizeof session->joiner_share);
    join_message_field(reply, joiner->name, strlen(joiner->name));
    if (joiner_sent(joiner, AWAIT_ANSWER, now_ms + LIMIT_JOIN_STEP_MS, JOIN_WAITING, reply, err) ==
        JOIN_FAILED)
        return ERROR_NO_MEMORY;
    join_digest(reply->data, reply->size, session->hello);
    return ERROR_NONE;
}

/* ---- ANSWER, ACCEPT ------------------------------------------------------------------------- */

/* What opens the proof: by code the tag, by hand the nonce of the commitment. */
static bool make_proof(struct joiner *joiner, uint8_t proof[32])
{
    struct join_session *session = &joiner->session;
    if (session->mode == JOIN_BY_CODE) {
        if (!join_session_key(session, JOINER))
            return false;
        join_session_tag(session, JOINER, proof);
        joiner->pace->n_shown++;
        return true;
    }
    memcpy(proof, session->own_secret, 32);
    join_session_words(session, session->own_secret);
    sodium_memzero(session->own_secret, sizeof session->own_secret);
    return true;
}

static enum join_result on_answer(struct joiner *joiner, uint64_t now_ms,
                                  const struct join_message *message, struct buffer *reply,
                                  struct error *err)
{
    const struct join_field *fields = message->fields;
    struct join_session *session = &joiner->session;
    uint8_t proof[32], signature[64];
    memcpy(joiner->cluster_id, fields[0].bytes, CLUSTER_ID_BYTES);
    memcpy(joiner->peer_id, fields[1].bytes, NODE_ID_BYTES);
    memcpy(session->inviter_share, fields[2].bytes, sizeof session->inviter_share);
    memcpy(joiner->peer_name, fields[3].bytes, fields[3].size);
    joiner->peer_name[fields[3].size] = 0;
    if (!make_proof(joiner, proof))
        return joiner_broken(joiner, reply, err, "the member's answer is not a point of the group");
    if (join_session_sign(session, joiner->identity, signature, err))
        return joiner_fail(joiner, JOIN_REFUSED_DECLINED, reply);
    join_message_begin(reply, JOIN_PROOF);
    join_message_field(reply, proof, sizeof proof);
    join_message_field(reply, signature, sizeof signature);
    return joiner_sent(joiner, AWAIT_ACCEPT, now_ms + LIMIT_JOIN_STEP_MS, JOIN_WAITING, reply, err);
}

static enum join_result on_accept(struct joiner *joiner, uint64_t now_ms,
                                  const struct join_message *message, struct buffer *reply,
                                  struct error *err)
{
    uint8_t tag[CPACE_TAG_BYTES];
    join_session_tag(&joiner->session, INVITER, tag);
    bool right = sodium_memcmp(tag, message->fields[0].bytes, sizeof tag) == 0;
    sodium_memzero(tag, sizeof tag);
    if (!right && joiner->session.mode == JOIN_BY_CODE) {
        error_set(err, ERROR_INVALID, "%s does not know this join code; another member made it",
                  joiner->peer_name);
        return joiner_fail(joiner, JOIN_REFUSED_CODE, reply);
    }
    if (!right)
        return joiner_broken(joiner, reply, err,
                             "the member's proof is wrong: somebody may be in the middle");
    if (joiner->session.mode == JOIN_BY_CODE)
        return joiner_sent(joiner, AWAIT_GRANT, now_ms + LIMIT_JOIN_STEP_MS, JOIN_WAITING, reply,
                           err);
    return joiner_sent(joiner, AWAIT_PERSON, now_ms + LIMIT_JOIN_WAIT_MS, JOIN_COMPARE, reply, err);
}

enum join_result joiner_agree(struct joiner *joiner, uint64_t now_ms, struct buffer *reply)
{
    uint8_t tag[CPACE_TAG_BYTES];
    buffer_clear(reply);
    if (joiner->session.state != AWAIT_PERSON)
        return joiner->session.state == JOIN_STATE_FAILED ? JOIN_FAILED : JOIN_WAITING;
    join_session_note(&joiner->session, JOIN_AGREE, tag);
    join_message_begin(reply, JOIN_AGREE);
    join_message_field(reply, tag, sizeof tag);
    return joiner_sent(joiner, AWAIT_GRANT, now_ms + LIMIT_JOIN_WAIT_MS, JOIN_WAITING, reply, NULL);
}

/* ---- GRANT ---------------------------------------------------------------------------------- */

static enum join_result on_grant(struct joiner *joiner, uint64_t now_ms,
                                 const struct join_message *message, struct buffer *reply,
                                 struct error *err)
{
    memcpy(joiner->membership.authority.cluster_id, joiner->cluster_id, CLUSTER_ID_BYTES);
    if (join_grant_open(&joiner->session, &message->fields[0], joiner->identity,
                        &joiner->membership, &joiner->payload, err))
        return joiner_fail(joiner, JOIN_REFUSED_BROKEN, reply);
    return joiner_sent(joiner, STORING, now_ms + LIMIT_JOIN_STEP_MS, JOIN_STORE, reply, err);
}

void joiner_take(struct joiner *joiner, struct membership *membership, struct buffer *payload)
{
    assert(joiner->session.state == STORING);
    *membership = joiner->membership;
    *payload = joiner->payload;
    joiner->membership = (struct membership){0};
    joiner->payload = (struct buffer){0};
}

enum join_result joiner_done(struct joiner *joiner, struct buffer *reply)
{
    uint8_t tag[CPACE_TAG_BYTES];
    assert(joiner->session.state == STORING);
    join_session_note(&joiner->session, JOIN_DONE, tag);
    join_message_begin(reply, JOIN_DONE);
    join_message_field(reply, tag, sizeof tag);
    sodium_memzero(&joiner->session, sizeof joiner->session);
    joiner->session.state = JOIN_STATE_OVER;
    return JOIN_OVER; /* a DONE that cannot be sent changes nothing: this node is a member */
}

/* ---- the machine ---------------------------------------------------------------------------- */

static const char *joiner_peer_name(const struct joiner *joiner)
{
    return joiner->peer_name[0] ? joiner->peer_name : "the member";
}

enum join_result joiner_tick(struct joiner *joiner, uint64_t now_ms, struct buffer *reply,
                             struct error *err)
{
    int state = joiner->session.state;
    buffer_clear(reply);
    if (state == JOIN_STATE_FAILED)
        return JOIN_FAILED;
    if (state == JOIN_STATE_OVER || state == STORING || now_ms < joiner->deadline_ms)
        return state == JOIN_STATE_OVER ? JOIN_OVER : JOIN_WAITING;
    error_set(err, ERROR_CANCELLED, "%s",
              state == AWAIT_PERSON ? "nobody said yes on this machine in time"
                                    : "the member did not answer in time");
    return joiner_fail(joiner, JOIN_REFUSED_TIME, reply);
}

enum join_result joiner_refuse(struct joiner *joiner, struct buffer *reply, struct error *err)
{
    error_set(err, ERROR_CANCELLED, "joining %s was cancelled on this machine",
              joiner_peer_name(joiner));
    return joiner_fail(joiner, JOIN_REFUSED_DECLINED, reply);
}

enum join_result joiner_step(struct joiner *joiner, uint64_t now_ms, const void *bytes, size_t size,
                             struct buffer *reply, struct error *err)
{
    struct join_message message;
    enum join_result result = joiner_tick(joiner, now_ms, reply, err);
    if (result != JOIN_WAITING)
        return result;
    if (join_message_read(bytes, size, &message, err))
        return joiner_fail(joiner, JOIN_REFUSED_BROKEN, reply);
    if (message.type == JOIN_REFUSE) {
        enum join_refusal refusal = join_refusal_read(&message, joiner_peer_name(joiner), err);
        result = joiner_fail(joiner, 0, reply);
        joiner->refusal = refusal;
        return result;
    }
    int state = joiner->session.state;
    if (state == AWAIT_ANSWER && message.type == JOIN_ANSWER) {
        join_digest(bytes, size, joiner->session.answer);
        return on_answer(joiner, now_ms, &message, reply, err);
    }
    if (state == AWAIT_ACCEPT && message.type == JOIN_ACCEPT)
        return on_accept(joiner, now_ms, &message, reply, err);
    if (state == AWAIT_GRANT && message.type == JOIN_GRANT)
        return on_grant(joiner, now_ms, &message, reply, err);
    return joiner_broken(joiner, reply, err, "the member sent a message that is not its turn's");
}

void joiner_deinit(struct joiner *joiner)
{
    if (!joiner)
        return;
    membership_deinit(&joiner->membership);
    buffer_deinit(&joiner->payload);
    sodium_memzero(joiner, sizeof *joiner);
}
