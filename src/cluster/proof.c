#include "cluster/proof.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "cluster/state_impl.h"
#include "trust/signature.h"

#include <assert.h>
#include <string.h>

static const char label[] = "medley event 1"; /* with its NUL: no other message begins so */
enum { HEAD_BYTES = sizeof label + CLUSTER_ID_BYTES + 3 * 8, FIELD_BYTES_MAX = 160 };

const char proof_is_late[] =
    "another change by an admin came first, or the log was founded anew: try again";

/* The cluster's id: of the state, or of the event that begins the roles. NULL: it is not known. */
static const uint8_t *cluster_of(const Cluster__State *s, const Cluster__Event *event)
{
    if (s->has_cluster)
        return s->cluster.data; /* of that size: proof_check(), good_snapshot() */
    const bool begins = event->kind_case == CLUSTER__EVENT__KIND_NODE_ROLE &&
                        event->node_role->cluster.len == CLUSTER_ID_BYTES;
    return begins ? event->node_role->cluster.data : NULL;
}

/* What is signed, in memory of its own. NULL: no memory. */
static uint8_t *proof_signed_text(const Cluster__State *s, const uint8_t *cluster, uint64_t change,
                                  const uint8_t *body, size_t size)
{
    uint8_t *text = mem_new(HEAD_BYTES + size), *at = text;
    if (!text)
        return NULL;
    memcpy(at, label, sizeof label);
    memcpy(at += sizeof label, cluster, CLUSTER_ID_BYTES);
    bytes_store(at += CLUSTER_ID_BYTES, 8, s->generation);
    bytes_store(at += 8, 8, s->founder);
    bytes_store(at += 8, 8, change);
    memcpy(at + 8, body, size);
    return text;
}

/* The field as it stands at an event's end: its tag, its length, and the message. 0: too large for
 * one of ours. */
static size_t write_proof_field(const Cluster__Proof *proof, uint8_t field[FIELD_BYTES_MAX])
{
    enum { TAG = 5 << 3 | 2, LENGTH_MORE = 0x80 };
    const size_t size = protobuf_c_message_get_packed_size(&proof->base);
    size_t n = 0;
    if (size + 3 > FIELD_BYTES_MAX)
        return 0;
    field[n++] = TAG;
    if (size >= LENGTH_MORE)
        field[n++] = (uint8_t)(size | LENGTH_MORE);
    field[n++] = (uint8_t)(size >= LENGTH_MORE ? size >> 7 : size);
    return n + protobuf_c_message_pack(&proof->base, field + n);
}

/* The bytes before the proof, which must be the last of all. 0: it is not. */
static size_t body_size(const Cluster__Proof *proof, const uint8_t *bytes, size_t size)
{
    uint8_t field[FIELD_BYTES_MAX];
    const size_t n = write_proof_field(proof, field);
    return n && size > n && memcmp(bytes + size - n, field, n) == 0 ? size - n : 0;
}

/* ---- making ---- */

enum error_code proof_add(const struct state *state, const struct identity *signer,
                          struct buffer *event, struct error *err)
{
    static const Cluster__State nothing = CLUSTER__STATE__INIT;
    const Cluster__State *s = state->root ? state->root : &nothing;
    uint8_t signature[SIGNATURE_BYTES], public_key[PUBLIC_KEY_BYTES], field[FIELD_BYTES_MAX];
    Cluster__Event *decoded = NULL;
    enum error_code code = event_decode((const uint8_t *)event->data, event->size, &decoded, err);
    if (code)
        return code;
    assert(!decoded->proof);
    const uint8_t *cluster = cluster_of(s, decoded);
    const uint64_t change = s->admin_changes + 1;
    uint8_t *text =
        cluster ? proof_signed_text(s, cluster, change, (const uint8_t *)event->data, event->size)
                : NULL;
    event_free(decoded);
    if (!text)
        return cluster ? error_set(err, ERROR_NO_MEMORY, "not enough memory for a signature")
                       : error_set(err, ERROR_BUSY, "this cluster has no roles yet");
    code = signature_make(signer->key, text, HEAD_BYTES + event->size, signature, err);
    mem_free(text);
    if (code)
        return code;
    memcpy(public_key, signer->public_key, sizeof public_key);
    Cluster__Proof proof = CLUSTER__PROOF__INIT;
    proof.has_public_key = proof.has_change = proof.has_signature = true;
    proof.public_key = (ProtobufCBinaryData){sizeof public_key, public_key};
    proof.has_generation = proof.has_founder = true;
    proof.change = change;
    proof.generation = s->generation;
    proof.founder = s->founder;
    proof.signature = (ProtobufCBinaryData){sizeof signature, signature};
    const size_t n = write_proof_field(&proof, field);
    assert(n);
    buffer_append(event, field, n);
    return event->failed ? error_set(err, ERROR_NO_MEMORY, "not enough memory for a signature")
                         : ERROR_NONE;
}

/* ---- checking ---- */

/* As proof_add() writes it and in no other way: one event has one form. */
static bool is_whole(const Cluster__Proof *proof)
{
    return proof->public_key.len == PUBLIC_KEY_BYTES && proof->signature.len == SIGNATURE_BYTES &&
           proof->has_change && proof->has_generation && proof->has_founder &&
           !proof->base.n_unknown_fields;
}

static bool signer_is_author(const Cluster__Proof *proof, const char *by)
{
    uint8_t id[NODE_ID_BYTES];
    char text[NODE_ID_TEXT];
    node_id_of(proof->public_key.data, id);
    id_text(id, sizeof id, text);
    return same_text(by, text);
}

/* Its author is an admin; or a node takes itself out, for which it needs nobody. */
static bool author_may(const Cluster__State *s, const Cluster__Event *event)
{
    const bool leaves = event->kind_case == CLUSTER__EVENT__KIND_NODE_REMOVED &&
                        same_text(event->node_removed->id, event->by);
    return roles_is_admin(s, event->by) || (leaves && roles_is_member(s, event->by));
}

const char *proof_check(const Cluster__State *s, const Cluster__Event *event, const uint8_t *bytes,
                        size_t size, bool *proven)
{
    const Cluster__Proof *proof = event->proof;
    const bool begins = !s->has_cluster && event->kind_case == CLUSTER__EVENT__KIND_NODE_ROLE;
    *proven = false;
    if (!event_needs_admin(event) || (!s->has_cluster && !begins))
        return NULL; /* from before there were roles: every member may */
    if (!proof || !is_whole(proof) || !signer_is_author(proof, event->by))
        return "it needs the signature of an admin";
    const uint8_t *cluster = cluster_of(s, event);
    const size_t n = body_size(proof, bytes, size);
    if (!cluster || !n)
        return "its signature is not good";
    if (proof->change != s->admin_changes + 1 || proof->generation != s->generation ||
        proof->founder != s->founder)
        return proof_is_late;
    if (!author_may(s, event))
        return "who signed it is not an admin";
    uint8_t *text = proof_signed_text(s, cluster, proof->change, bytes, n);
    if (!text)
        return no_memory;
    *proven =
        signature_is_good(proof->public_key.data, text, HEAD_BYTES + n, proof->signature.data);
    mem_free(text);
    return *proven ? NULL : "its signature is not good";
}
