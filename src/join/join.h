/* How a machine becomes a member: the join protocol, as two state machines without socket or clock.
 *
 * The channel is one TLS connection with the protocol CREDENTIALS_JOIN_ALPN (credentials.h) that
 * has authenticated nothing: whom each side talks to is what the protocol finds out, in one of two
 * ways.
 *
 *   JOIN_BY_CODE   a person reads a code on a member and types it on the joiner. The two prove to
 *                  each other that they know it, by CPace (cpace.h): who listens, or sits in the
 *                  middle, learns nothing, and gets one guess an attempt (join_invite.h counts
 *                  them).
 *   JOIN_BY_HAND   both sides show four words, and a person who sees the same ones on both lets the
 *                  node in, on both sides. Each side has bound itself to its part of the words
 *                  before it sees the other's, so one in the middle gets the same words on both
 *                  sides with a chance of 1 in 2^32.
 *
 * In both, everything depends on the TLS channel's own secret (credentials_channel_binding()):
 * messages carried from one channel to another are worth nothing there. Then the member hands over
 * the authority's certificate, the joiner's own, the authority's key if the joiner shall have it,
 * and what the cluster wants a new member to know, sealed with the key that was agreed on.
 *
 *     joiner                                                member (inviter)
 *     HELLO   mode, public key, share | commitment, name ->
 *                     <- ANSWER  cluster, node id, share | nonce, name
 *     PROOF   tag | opened commitment, signature ->                                       code
 *             right?  or: words
 *                     <- ACCEPT  tag
 *     (by hand: AGREE tag, when the person at the joiner has said yes ->) JOIN_DECIDE
 *                     <- GRANT   sealed certificates
 *                                inviter_grant()
 *     JOIN_STORE, then DONE tag ->                                                        JOIN_OVER
 *
 * The joiner proves first: a stranger learns nothing about the code from a member before it has
 * shown a guess that is counted. The signature proves that the joiner has the private key of the
 * node id that is let in.
 *
 * Use: every message that comes in goes to …_step() with the time; what that puts into `reply` (if
 * anything) is sent as one message; the result says what happens next. At machine.deadline_ms call
 * …_tick(). After JOIN_FAILED send the reply, which tells the other side why, and close the
 * channel; err says what to tell the user. A machine that has ended ignores what comes.
 *
 * Ownership: machines lie in the caller's memory; what the settings point to must outlive them;
 * …_deinit() wipes. Threads: none; one invite is for machines of one thread. */
#pragma once

#include "base/buffer.h"
#include "join/cpace.h"
#include "join/join_invite.h"
#include "join/join_words.h"
#include "trust/authority.h"
#include "trust/credentials.h"

enum join_mode { JOIN_BY_CODE = 1, JOIN_BY_HAND = 2 };

enum join_result {
    JOIN_WAITING, /* for the other side's next message */
    JOIN_COMPARE, /* show machine.session.words; then …_agree(), or …_refuse() */
    JOIN_DECIDE,  /* inviter: it is who it says; let machine.peer_… in with inviter_grant(), or
                     inviter_refuse() */
    JOIN_STORE,   /* joiner: is a member: joiner_take(), keep it, then joiner_done() */
    JOIN_OVER,    /* all is done */
    JOIN_FAILED,
};

enum join_refusal {
    JOIN_REFUSED_BROKEN = 1, /* a message made no sense */
    JOIN_REFUSED_CODE,       /* the code is wrong */
    JOIN_REFUSED_NO_CODE,    /* no code is open on this member */
    JOIN_REFUSED_BUSY,       /* try again in a few seconds */
    JOIN_REFUSED_DECLINED,   /* a person, or the cluster, said no */
    JOIN_REFUSED_TIME,       /* it took too long */
    JOIN_REFUSED_NOT_ADMIN,  /* a plain member lets nobody in: ask another */
};

enum { JOIN_NAME_TEXT = 64, JOIN_DIGEST_BYTES = 64, JOIN_WHY_MAX = 200 };

/* What both machines have. */
struct join_session {
    enum join_mode mode;
    int state;
    uint8_t binding[CHANNEL_BINDING_BYTES];
    uint8_t own_secret[32];                      /* CPace scalar, or the joiner's nonce */
    uint8_t hello[JOIN_DIGEST_BYTES];            /* hash of the whole message */
    uint8_t answer[JOIN_DIGEST_BYTES];           /* the same */
    uint8_t joiner_share[32], inviter_share[32]; /* as in HELLO and ANSWER */
    uint8_t key[CPACE_KEY_BYTES];                /* agreed on */
    char words[JOIN_WORDS_TEXT];                 /* by hand */
};

/* How much a joiner risks with whom it cannot know. Zeroed: nothing yet. */
struct join_pace {
    /* By code: how many others this code's proof was shown to; from LIMIT_JOIN_GUESSES on no more
     * are made. A false member gets one guess each. 0 again when the user types another code. */
    uint32_t n_shown;
    uint64_t hand_paused_until_ms; /* by hand: join_knock() */
};

struct joiner_settings {
    const struct identity *identity;
    const char *name; /* join_name_is_valid() */
    uint8_t binding[CHANNEL_BINDING_BYTES];
    enum join_mode mode;
    char code[JOIN_CODE_DIGITS]; /* by code: join_code_parse() */
    struct join_pace *pace;      /* this node's, for all its attempts */
};

struct joiner {
    const struct identity *identity;
    char name[JOIN_NAME_TEXT];
    struct join_pace *pace;
    uint64_t deadline_ms;
    enum join_refusal refusal;      /* after JOIN_FAILED: why the other side refused, or 0 */
    char peer_name[JOIN_NAME_TEXT]; /* from ANSWER on; believed from ACCEPT on (by code), or when
                                       the words are equal */
    uint8_t peer_id[NODE_ID_BYTES];
    uint8_t cluster_id[CLUSTER_ID_BYTES];
    struct membership membership;
    struct buffer payload;
    struct join_session session;
};

/* Makes the first message. ERROR_BUSY: the pace forbids it, now (by hand) or for good (by code). */
enum error_code joiner_start(struct joiner *joiner, const struct joiner_settings *settings,
                             uint64_t now_ms, struct buffer *reply, struct error *err);
enum join_result joiner_step(struct joiner *joiner, uint64_t now_ms, const void *message,
                             size_t size, struct buffer *reply, struct error *err);
enum join_result joiner_tick(struct joiner *joiner, uint64_t now_ms, struct buffer *reply,
                             struct error *err);
enum join_result joiner_agree(struct joiner *joiner, uint64_t now_ms, struct buffer *reply);
enum join_result joiner_refuse(struct joiner *joiner, struct buffer *reply, struct error *err);

/* After JOIN_STORE, once: the membership, and the cluster's words. The caller frees both. */
void joiner_take(struct joiner *joiner, struct membership *membership, struct buffer *payload);
enum join_result joiner_done(struct joiner *joiner, struct buffer *reply);
void joiner_deinit(struct joiner *joiner);

struct inviter_settings {
    const struct identity *identity;
    const struct authority *authority; /* with its key */
    const char *name;
    uint8_t binding[CHANNEL_BINDING_BYTES];
    struct invite *invite; /* this node's, shared by all its inviters */
};

struct inviter {
    const struct identity *identity;
    const struct authority *authority;
    char name[JOIN_NAME_TEXT];
    struct invite *invite;
    uint64_t deadline_ms;
    bool we_agree, they_agree;
    char peer_name[JOIN_NAME_TEXT]; /* from HELLO on; whether to believe them is what JOIN_DECIDE
                                       says */
    uint8_t peer_public_key[PUBLIC_KEY_BYTES];
    uint8_t peer_id[NODE_ID_BYTES];
    struct join_session session;
};

enum error_code inviter_init(struct inviter *inviter, const struct inviter_settings *settings,
                             uint64_t now_ms, struct error *err);
enum join_result inviter_step(struct inviter *inviter, uint64_t now_ms, const void *message,
                              size_t size, struct buffer *reply, struct error *err);
enum join_result inviter_tick(struct inviter *inviter, uint64_t now_ms, struct buffer *reply,
                              struct error *err);
enum join_result inviter_agree(struct inviter *inviter, uint64_t now_ms);

/* `why` is shown at the joiner: printable ASCII, at most 200 characters. */
enum join_result inviter_refuse(struct inviter *inviter, const char *why, struct buffer *reply,
                                struct error *err);

struct join_grant {
    bool with_key; /* the joiner may let others in, too */
    const void *payload;
    size_t payload_size; /* at most LIMIT_JOIN_PAYLOAD_BYTES */
};

/* After JOIN_DECIDE. On JOIN_FAILED nothing was granted. */
enum join_result inviter_grant(struct inviter *inviter, const struct join_grant *grant,
                               uint64_t now_ms, uint64_t now_unix_s, struct buffer *reply,
                               struct error *err);
void inviter_deinit(struct inviter *inviter);
