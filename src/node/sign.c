#include "node/sign.h"

#include "base/log.h"
#include "base/version.h"
#include "cluster/event.h"
#include "mesh/frames.h"
#include "node/daemon_state.h"
#include "node/peers.h"
#include "node/roles.h"

#include <assert.h>
#include <string.h>

/* ---- asking ---- */

/* The linked admin after the one that was asked last. */
static struct peer *sign_next_admin(struct daemon *daemon)
{
    struct peer *first = NULL;
    bool past = false;
    for (struct peer *peer = daemon->peers; peer; peer = peer->next) {
        if (!peer->link || peer->is_silent || !state_is_admin(daemon_state(daemon), peer->id))
            continue;
        if (past)
            return peer;
        first = first ? first : peer;
        past = strcmp(peer->id, daemon->last_asked) == 0;
    }
    return first;
}

enum error_code sign_ask(struct daemon *daemon, Node__SignRequest *request, sign_done_fn done,
                         struct error *err)
{
    struct sign_question *question = &daemon->questions[request->what];
    struct buffer bytes = {0}, names = {0};
    assert(request->has_what && (size_t)request->what < SIGN_KINDS && done);
    if (question->id)
        return error_set(err, ERROR_BUSY, "an admin was asked already");
    struct peer *admin = sign_next_admin(daemon);
    if (!admin) {
        roles_name_admins(daemon, &names);
        error_set(err, ERROR_NOT_FOUND, "no admin of the cluster can be reached: %s",
                  names.data ? names.data : "?");
        buffer_deinit(&names);
        return ERROR_NOT_FOUND;
    }
    *question = (struct sign_question){.id = ++daemon->n_questions,
                                       .until_ms = daemon_now_ms(daemon) + SIGN_WAIT_MS,
                                       .done = done};
    memcpy(question->admin, admin->id, sizeof question->admin);
    memcpy(daemon->last_asked, admin->id, sizeof daemon->last_asked);
    request->has_id = true;
    request->id = question->id;
    message_encode(&request->base, &bytes);
    if (!bytes.failed)
        daemon_post(admin->link, FRAME_SIGN, bytes.data, bytes.size);
    buffer_deinit(&bytes); /* a message that did not go is one without an answer */
    return ERROR_NONE;
}

static void sign_end(struct daemon *daemon, struct sign_question *question,
                     const Node__SignAnswer *answer, const struct error *err)
{
    const struct sign_question ended = *question;
    *question = (struct sign_question){0};
    ended.done(daemon, answer, err);
}

void sign_step(struct daemon *daemon)
{
    const uint64_t now_ms = daemon_now_ms(daemon);
    for (int i = 0; i < SIGN_KINDS; i++) {
        struct sign_question *question = &daemon->questions[i];
        struct error late;
        if (!question->id || now_ms < question->until_ms)
            continue;
        error_set(&late, ERROR_BUSY, "%s did not answer in time",
                  daemon_name_of(daemon, question->admin));
        sign_end(daemon, question, NULL, &late);
    }
}

static void sign_take_answer(struct daemon *daemon, const struct peer *peer,
                             const Node__SignAnswer *answer)
{
    struct error problem;
    if (!answer->has_what || (unsigned)answer->what >= SIGN_KINDS)
        return; /* of a newer version */
    struct sign_question *question = &daemon->questions[answer->what];
    if (!question->id || question->id != answer->id || strcmp(question->admin, peer->id) != 0)
        return; /* too late, or to what nobody has asked */
    if (answer->problem) {
        error_set(&problem, ERROR_INVALID, "%s: %.200s", daemon_name_of(daemon, peer->id),
                  answer->problem);
        sign_end(daemon, question, NULL, &problem);
    } else {
        sign_end(daemon, question, answer, NULL);
    }
}

/* ---- being asked ---- */

/* The authority that is meant; NULL: this node does not have its key. */
static const struct authority *sign_authority(const struct daemon *daemon,
                                              const Node__SignRequest *request)
{
    const struct authority *own[] = {&daemon->membership.authority, &daemon->membership.next};
    const bool any = request->authority.len != PUBLIC_KEY_BYTES;
    for (int i = 0; i < 2; i++) {
        if (any || authority_is(own[i], request->authority.data))
            return own[i]->key ? own[i] : NULL;
    }
    return NULL;
}

static enum error_code sign_node(const struct daemon *daemon, const struct peer *peer,
                                 const Node__SignRequest *request, struct buffer *certificate,
                                 struct error *err)
{
    uint8_t id[NODE_ID_BYTES];
    X509 *made = NULL;
    if (request->public_key.len != PUBLIC_KEY_BYTES)
        return error_set(err, ERROR_INVALID, "that is no public key");
    node_id_of(request->public_key.data, id);
    if (memcmp(id, peer->node_id, sizeof id) != 0)
        return error_set(err, ERROR_INVALID, "that is another node's key");
    enum error_code code = authority_sign(sign_authority(daemon, request), request->public_key.data,
                                          daemon_wall_ms() / 1000, &made, err);
    if (!code)
        code = certificate_encode(made, certificate, err);
    certificate_free(made);
    return code;
}

static enum error_code sign_hand_over(const struct daemon *daemon, const struct peer *peer,
                                      const Node__SignRequest *request,
                                      uint8_t key[AUTHORITY_KEY_BYTES], struct error *err)
{
    if (!state_is_admin(daemon_state(daemon), peer->id))
        return error_set(err, ERROR_INVALID, "the authority's key is for admins");
    return authority_key_bytes(sign_authority(daemon, request), key, err);
}

/* What is given. */
struct sign_made {
    struct buffer certificate, api_authority; /* DER */
    uint8_t key[AUTHORITY_KEY_BYTES];
};

/* Who asks too often waits: a signature takes longer than asking for one. */
static bool sign_is_too_soon(const struct daemon *daemon, struct peer *peer)
{
    const uint64_t now_ms = daemon_now_ms(daemon);
    const bool soon = peer->signed_ms && now_ms - peer->signed_ms < SIGN_PAUSE_MS;
    if (!soon)
        peer->signed_ms = now_ms;
    return soon;
}

static enum error_code sign_make(struct daemon *daemon, struct peer *peer,
                                 const Node__SignRequest *request, struct sign_made *made,
                                 struct error *err)
{
    if (sign_is_too_soon(daemon, peer))
        return error_set(err, ERROR_BUSY, "asked too often");
    if (!sign_authority(daemon, request))
        return error_set(err, ERROR_UNSUPPORTED, "this node does not have the authority's key");
    switch (request->what) {
    case NODE__SIGN_WHAT__SIGN_NODE:
        return sign_node(daemon, peer, request, &made->certificate, err);
    case NODE__SIGN_WHAT__SIGN_KEY:
        return sign_hand_over(daemon, peer, request, made->key, err);
    case NODE__SIGN_WHAT__SIGN_API:
        return daemon_tls_sign(daemon, peer, request, &made->certificate, &made->api_authority,
                               err);
    case _NODE__SIGN_WHAT_IS_INT_SIZE:
        break;
    }
    return error_set(err, ERROR_UNSUPPORTED, "medley %s does not sign that", MEDLEY_VERSION);
}

static void sign_answer(struct daemon *daemon, struct peer *peer, const Node__SignRequest *request)
{
    Node__SignAnswer answer = NODE__SIGN_ANSWER__INIT;
    struct sign_made made = {0};
    struct buffer bytes = {0};
    struct error err;
    const enum error_code code = sign_make(daemon, peer, request, &made, &err);
    answer.has_id = answer.has_what = true;
    answer.id = request->id;
    answer.what = request->what;
    answer.problem = code ? err.text : NULL;
    answer.has_certificate = !code && made.certificate.size;
    answer.certificate =
        (ProtobufCBinaryData){made.certificate.size, (uint8_t *)made.certificate.data};
    answer.has_api_authority = !code && made.api_authority.size;
    answer.api_authority =
        (ProtobufCBinaryData){made.api_authority.size, (uint8_t *)made.api_authority.data};
    answer.has_key = !code && request->what == NODE__SIGN_WHAT__SIGN_KEY;
    answer.key = (ProtobufCBinaryData){sizeof made.key, made.key};
    message_encode(&answer.base, &bytes);
    if (!bytes.failed)
        daemon_post(peer->link, FRAME_SIGNED, bytes.data, bytes.size);
    if (bytes.data)
        authority_key_wipe((uint8_t *)bytes.data, bytes.size);
    authority_key_wipe(made.key, sizeof made.key);
    buffer_deinit(&made.certificate);
    buffer_deinit(&made.api_authority);
    buffer_deinit(&bytes);
    log_line(code ? LOG_WARN : LOG_INFO, "node", "%s asked for %s: %s",
             daemon_name_of(daemon, peer->id),
             request->what == NODE__SIGN_WHAT__SIGN_KEY ? "the authority's key" : "a certificate",
             code ? err.text : "given");
}

/* ---- frames ---- */

enum error_code sign_take(struct daemon *daemon, struct peer *peer,
                          const struct frame_header *header, const uint8_t *payload,
                          struct error *err)
{
    ProtobufCMessage *message = NULL;
    const bool asks = header->type == FRAME_SIGN;
    const ProtobufCMessageDescriptor *type =
        asks ? &node__sign_request__descriptor : &node__sign_answer__descriptor;
    const enum error_code code = message_decode(type, payload, header->length, &message, err);
    if (code)
        return code;
    if (asks) {
        if (peer->link)
            sign_answer(daemon, peer, (Node__SignRequest *)message);
    } else {
        Node__SignAnswer *answer = (Node__SignAnswer *)message;
        sign_take_answer(daemon, peer, answer);
        if (answer->key.len)
            authority_key_wipe(answer->key.data, answer->key.len);
    }
    message_free(message);
    return ERROR_NONE;
}
