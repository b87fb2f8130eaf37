#include "node/daemon_tls.h"

#include "base/log.h"
#include "node/api_names.h"
#include "node/daemon_state.h"
#include "node/peers.h"
#include "trust/pair_keeper.h"

#include <string.h>

enum {
    TLS_SOON_MS = 3000,   /* after a question that could not be put, or was not answered */
    TLS_LATER_MS = 60000, /* after one that was refused */
    TLS_DAY_S = 24 * 3600,
};

void daemon_tls_deinit(struct daemon_tls *tls)
{
    api_authority_deinit(&tls->authority);
    api_signed_deinit(&tls->kept);
    api_key_free(tls->key);
    tls->key = NULL;
}

void daemon_tls_forget(struct daemon *daemon)
{
    struct error err;
    api_signed_deinit(&daemon->tls.kept);
    daemon->tls.kept_names = (struct served_names){0};
    if (api_signed_forget(daemon->folder, &err))
        log_line(LOG_WARN, "node", "%s", err.text);
}

/* ---- an admin ---- */

/* Derived once for each authority that this node has had. */
static bool daemon_tls_derive(struct daemon *daemon, struct error *err)
{
    const struct authority *cluster = &daemon->membership.authority;
    struct daemon_tls *tls = &daemon->tls;
    if (!daemon->is_member || !cluster->key)
        return error_set(err, ERROR_UNSUPPORTED, "this node does not have the authority's key"),
               false;
    const uint64_t version = api_authority_version(cluster->certificate);
    if (tls->authority.certificate && tls->authority_of == version)
        return true;
    api_authority_deinit(&tls->authority);
    if (api_authority_of_cluster(cluster, &tls->authority, err))
        return false;
    tls->authority_of = version;
    return true;
}

static enum error_code daemon_tls_read_names(const Node__SignRequest *request,
                                             struct served_names *names, struct error *err)
{
    ProtobufCMessage *message = NULL;
    *names = (struct served_names){0};
    const enum error_code code = message_decode(&node__api_names__descriptor, request->request.data,
                                                request->request.len, &message, err);
    if (code)
        return code;
    const Node__ApiNames *asked = (const Node__ApiNames *)message;
    bool fits = asked->n_names <= SERVED_NAMES_MAX && asked->n_addresses <= SERVED_ADDRESSES_MAX;
    for (size_t i = 0; fits && i < asked->n_names; i++)
        fits = served_names_add(names, asked->names[i]);
    for (size_t i = 0; fits && i < asked->n_addresses; i++)
        fits = served_names_add(names, asked->addresses[i]);
    message_free(message);
    return fits ? ERROR_NONE
                : error_set(err, ERROR_INVALID, "these are no names and addresses of an API");
}

enum error_code daemon_tls_sign(struct daemon *daemon, const struct peer *peer,
                                const Node__SignRequest *request, struct buffer *certificate,
                                struct buffer *authority, struct error *err)
{
    struct served_names asked, granted;
    if (request->authority.len != PUBLIC_KEY_BYTES ||
        !authority_is(&daemon->membership.authority, request->authority.data))
        return error_set(err, ERROR_BUSY, "the cluster's authority is being rotated: ask again");
    if (!daemon_tls_derive(daemon, err))
        return err->code;
    enum error_code code = daemon_tls_read_names(request, &asked, err);
    if (!code)
        code = api_names_grant(daemon_state(daemon), peer->id, &asked, &granted, err);
    if (!code)
        code = api_point_sign(&daemon->tls.authority, request->public_key.data,
                              request->public_key.len, &granted, daemon_wall_ms() / 1000,
                              certificate, err);
    return code ? code : certificate_encode(daemon->tls.authority.certificate, authority, err);
}

/* ---- a plain member ---- */

static void daemon_tls_read_kept(struct daemon *daemon)
{
    struct error err;
    struct daemon_tls *tls = &daemon->tls;
    if (tls->has_read)
        return;
    tls->has_read = true;
    const enum error_code code = api_signed_load(daemon->folder, &tls->kept, &err);
    if (code && code != ERROR_NOT_FOUND)
        log_line(LOG_WARN, "node", "%s; an admin is asked for another", err.text);
    if (!code && !api_signed_is_of(&tls->kept, daemon->membership.authority.cluster_id))
        api_signed_deinit(&tls->kept); /* of another cluster */
}

static void daemon_tls_on_answer(struct daemon *daemon, const Node__SignAnswer *answer,
                                 const struct error *problem)
{
    struct daemon_tls *tls = &daemon->tls;
    struct api_signed made;
    struct error err;
    EVP_PKEY *key = tls->key;
    tls->key = NULL;
    if (!key || !daemon->is_member) { /* it has left meanwhile */
        api_key_free(key);
        return;
    }
    enum error_code code = problem ? problem->code : ERROR_NONE;
    if (problem)
        err = *problem;
    else
        code = api_signed_take(key, daemon->membership.authority.certificate,
                               answer->certificate.data, answer->certificate.len,
                               answer->api_authority.data, answer->api_authority.len, &made, &err);
    api_key_free(key);
    const bool refused = code && code != ERROR_BUSY;
    tls->again_ms = daemon_now_ms(daemon) + (refused ? TLS_LATER_MS : TLS_SOON_MS);
    if (code) {
        tls->problem = err;
        return;
    }
    api_signed_deinit(&tls->kept);
    tls->kept = made;
    tls->kept_names = tls->asked_names;
    if (api_signed_store(daemon->folder, &tls->kept, &err))
        log_line(LOG_WARN, "node", "%s; it lasts until this node ends", err.text);
    daemon_say(daemon, "an admin has signed the certificate of this machine's API");
}

static enum error_code daemon_tls_ask(struct daemon *daemon, const struct served_names *names,
                                      struct error *err)
{
    struct daemon_tls *tls = &daemon->tls;
    Node__SignRequest request = NODE__SIGN_REQUEST__INIT;
    Node__ApiNames asked = NODE__API_NAMES__INIT;
    uint8_t point[API_POINT_BYTES], authority[PUBLIC_KEY_BYTES];
    char *texts[SERVED_NAMES_MAX], *addresses[SERVED_ADDRESSES_MAX];
    struct buffer bytes = {0};
    for (uint32_t i = 0; i < names->n_names; i++)
        texts[i] = (char *)(uintptr_t)names->names[i];
    for (uint32_t i = 0; i < names->n_addresses; i++)
        addresses[i] = (char *)(uintptr_t)names->addresses[i];
    asked.names = texts;
    asked.n_names = names->n_names;
    asked.addresses = addresses;
    asked.n_addresses = names->n_addresses;
    message_encode(&asked.base, &bytes);
    enum error_code code = authority_public_key(&daemon->membership.authority, authority, err);
    if (!code)
        code = api_key_new(&tls->key, point, err);
    request.has_what = request.has_public_key = request.has_request = request.has_authority = true;
    request.what = NODE__SIGN_WHAT__SIGN_API;
    request.public_key = (ProtobufCBinaryData){sizeof point, point};
    request.request = (ProtobufCBinaryData){bytes.size, (uint8_t *)bytes.data};
    request.authority = (ProtobufCBinaryData){sizeof authority, authority};
    if (!code)
        code = sign_ask(daemon, &request, daemon_tls_on_answer, err);
    if (code) {
        api_key_free(tls->key);
        tls->key = NULL;
    }
    tls->asked_names = *names;
    buffer_deinit(&bytes);
    return code;
}

/* What was signed serves; else a question is on its way, and err says what became of the last. */
static enum error_code daemon_tls_issue_asked(struct daemon *daemon,
                                              const struct served_names *names, uint64_t now_unix_s,
                                              struct tls_pair *out, struct error *err)
{
    struct daemon_tls *tls = &daemon->tls;
    struct served_names own;
    const uint64_t now_ms = daemon_now_ms(daemon);
    daemon_tls_read_kept(daemon);
    if (api_names_own(daemon_state(daemon), daemon->id, names, &own, err))
        return error_set(err, ERROR_BUSY, "%s", "the cluster does not know this node's API yet");
    if (tls->kept.certificate && served_names_equal(&own, &tls->kept_names) &&
        api_signed_is_current(&tls->kept, &daemon->membership.authority) &&
        api_signed_until(&tls->kept) > now_unix_s + API_LEAF_RENEW_DAYS * (uint64_t)TLS_DAY_S) {
        *out = api_signed_pair(&tls->kept);
        tls->problem = (struct error){0};
        return ERROR_NONE;
    }
    if (!tls->key && now_ms >= tls->again_ms) {
        tls->again_ms = now_ms + TLS_SOON_MS;
        const enum error_code code = daemon_tls_ask(daemon, &own, err);
        if (code)
            tls->problem = *err;
    }
    if (!tls->problem.code)
        return error_set(err, ERROR_BUSY, "an admin has been asked for a certificate");
    *err = tls->problem;
    return err->code;
}

static enum error_code daemon_tls_last(void *self, uint64_t now_unix_s, struct tls_pair *out,
                                       struct error *err)
{
    struct daemon *daemon = self;
    daemon_tls_read_kept(daemon);
    if (!daemon->tls.kept.certificate || api_signed_until(&daemon->tls.kept) <= now_unix_s)
        return error_set(err, ERROR_NOT_FOUND, "no certificate is kept");
    *out = api_signed_pair(&daemon->tls.kept);
    return ERROR_NONE;
}

/* ---- the keeper's source ---- */

static uint64_t daemon_tls_version(void *self)
{
    const struct daemon *daemon = self;
    const X509 *cluster = daemon->membership.authority.certificate;
    return daemon->is_member && cluster ? api_authority_version(cluster) : 0;
}

static enum error_code daemon_tls_issue(void *self, const struct served_names *names,
                                        uint64_t now_unix_s, struct tls_pair *out,
                                        struct error *err)
{
    struct daemon *daemon = self;
    if (!daemon->membership.authority.key)
        return daemon_tls_issue_asked(daemon, names, now_unix_s, out, err);
    return daemon_tls_derive(daemon, err)
               ? api_authority_issue(&daemon->tls.authority, names, now_unix_s, out, err)
               : err->code;
}

static void daemon_api_shown(void *self, uint64_t until_unix_s)
{
    struct daemon *daemon = self;
    daemon->api_until_s = until_unix_s;
}

struct pair_source daemon_api_source(struct daemon *daemon)
{
    return (struct pair_source){.version = daemon_tls_version,
                                .issue = daemon_tls_issue,
                                .last = daemon_tls_last,
                                .shown = daemon_api_shown,
                                .self = daemon};
}

const char *daemon_own_id(const struct daemon *daemon)
{
    return daemon->id;
}

const char *daemon_own_name(const struct daemon *daemon)
{
    return daemon->name;
}
