/* What a hostile plain member proposes to a leader, and says of itself: events in its own name and
 * in an admin's, unsigned, signed with its own key, with a proof that it has seen, bent, or any
 * bytes. What the leader's node would hand to the log is applied, as every node would. Holds: who
 * belongs to the cluster, the roles and the honest node's record stay as they are; no token is made
 * or revoked; what it says of itself is within the limits. */
#include "hostile_peer.h"

#include "agreement/claims.h"
#include "base/limits.h"
#include "cluster/proof.h"

#include <assert.h>
#include <string.h>

enum { ADMIN_MEMBER = 11, PEER_MEMBER = 12 };

struct proposed {
    struct hostile_input in;
    struct state state;
    uint64_t index;
    struct buffer before; /* the honest node's record */
};

static struct identity admin, peer;
static char admin_id[NODE_ID_TEXT], peer_id[NODE_ID_TEXT];
static struct buffer seen; /* an event with an admin's proof */

/* ---- the cluster: an admin, and a plain member ---- */

static void apply(struct proposed *f, const Cluster__Event *event, bool is_signed, bool must)
{
    struct buffer bytes = {0};
    struct state_outcome outcome;
    event_encode(event, &bytes);
    if (is_signed)
        FUZZ_CHECK(!proof_add(&f->state, &admin, &bytes, NULL));
    FUZZ_CHECK(!state_apply(&f->state, ++f->index, (const uint8_t *)bytes.data, bytes.size,
                            &outcome, NULL));
    FUZZ_CHECK(!must || outcome.applied);
    if (is_signed && !seen.size)
        buffer_append(&seen, bytes.data, bytes.size);
    buffer_deinit(&bytes);
}

static void let_in(struct proposed *f, char *id, uint64_t member, bool is_signed)
{
    Cluster__Node node = CLUSTER__NODE__INIT;
    Cluster__NodeName name = CLUSTER__NODE_NAME__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    node.id = node.name = name.id = id;
    node.has_member = node.has_level = true;
    node.member = member;
    node.level = event_level_known();
    event.by = admin_id;
    event.kind_case = CLUSTER__EVENT__KIND_NODE_JOINED;
    event.node_joined = &node;
    apply(f, &event, is_signed, true);
    event.kind_case = CLUSTER__EVENT__KIND_NODE_ADMITTED;
    event.node_admitted = &name;
    apply(f, &event, is_signed, true);
}

static void fill_role(Cluster__NodeRole *role, char *id, Cluster__Role is)
{
    static uint8_t cluster[CLUSTER_ID_BYTES] = {1}, authority[PUBLIC_KEY_BYTES] = {2};
    cluster__node_role__init(role);
    role->id = id;
    role->has_role = role->has_cluster = role->has_authority = true;
    role->role = is;
    role->cluster = (ProtobufCBinaryData){sizeof cluster, cluster};
    role->authority = (ProtobufCBinaryData){sizeof authority, authority};
}

static void record_of(const struct proposed *f, struct buffer *out)
{
    const Cluster__NodeRecord *record = state_node(&f->state, admin_id);
    buffer_clear(out);
    FUZZ_CHECK(record);
    message_encode(&record->base, out);
}

static void open_cluster(struct proposed *f)
{
    Cluster__NodeRole role;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    if (!admin.key) {
        FUZZ_CHECK(!identity_of_seed((const uint8_t[32]){1}, &admin, NULL) &&
                   !identity_of_seed((const uint8_t[32]){2}, &peer, NULL));
        id_text(admin.node_id, NODE_ID_BYTES, admin_id);
        id_text(peer.node_id, NODE_ID_BYTES, peer_id);
    }
    let_in(f, admin_id, ADMIN_MEMBER, false);
    fill_role(&role, admin_id, CLUSTER__ROLE__ADMIN);
    event.by = admin_id;
    event.kind_case = CLUSTER__EVENT__KIND_NODE_ROLE;
    event.node_role = &role;
    apply(f, &event, true, true);
    let_in(f, peer_id, PEER_MEMBER, true);
    FUZZ_CHECK(state_is_admin(&f->state, admin_id) && !state_is_admin(&f->state, peer_id));
    record_of(f, &f->before);
}

/* ---- what the leader's node does with what comes ---- */

static void check_cluster(struct proposed *f)
{
    struct buffer now = {0};
    record_of(f, &now);
    FUZZ_CHECK(now.size == f->before.size && memcmp(now.data, f->before.data, now.size) == 0);
    FUZZ_CHECK(state_n_admins(&f->state) == 1 && state_is_admin(&f->state, admin_id));
    for (size_t i = 0; i < f->state.root->n_nodes; i++) {
        const char *id = f->state.root->nodes[i]->node->id;
        FUZZ_CHECK(strcmp(id, admin_id) == 0 || strcmp(id, peer_id) == 0);
    }
    FUZZ_CHECK(f->state.root->n_tokens == 0 && !f->state.root->has_former_authority);
    honest_checked++;
    buffer_deinit(&now);
}

/* As node/daemon_links.c. */
static void take_proposal(struct proposed *f, const struct buffer *bytes)
{
    Cluster__Event *event = NULL;
    struct state_outcome outcome;
    struct error err = {0};
    hostile_sent++;
    if (event_decode((const uint8_t *)bytes->data, bytes->size, &event, &err)) {
        FUZZ_CHECK(err.text[0]);
        hostile_refused++;
        return;
    }
    const bool is_update = event->kind_case == CLUSTER__EVENT__KIND_NODE_UPDATED;
    const uint64_t member = is_update ? event->node_updated->member : 0;
    const bool may = claims_event(event, peer_id) &&
                     (!member || claims_member(&f->state, peer_id, member, true) == member);
    FUZZ_CHECK(!may || strcmp(event->by, peer_id) == 0);
    event_free(event);
    hostile_refused += !may;
    if (!may)
        return;
    FUZZ_CHECK(!state_apply(&f->state, ++f->index, (const uint8_t *)bytes->data, bytes->size,
                            &outcome, NULL));
    check_cluster(f);
}

static void take_about(const struct buffer *bytes)
{
    ProtobufCMessage *message = NULL;
    hostile_sent++;
    if (message_decode(&cluster__node__descriptor, (const uint8_t *)bytes->data, bytes->size,
                       &message, NULL)) {
        hostile_refused++;
        return;
    }
    const Cluster__Node *about = (Cluster__Node *)message;
    const bool may = !claims_about(about, bytes->size, peer_id, NULL);
    FUZZ_CHECK(!may || (strcmp(about->id, peer_id) == 0 && about->n_devices <= LIMIT_DEVICES));
    hostile_refused += !may;
    message_free(message);
}

static void take_now(const struct buffer *bytes)
{
    ProtobufCMessage *message = NULL;
    hostile_sent++;
    if (message_decode(&node__now__descriptor, (const uint8_t *)bytes->data, bytes->size, &message,
                       NULL)) {
        hostile_refused++;
        return;
    }
    const Node__Now *now = (Node__Now *)message;
    const bool may = !claims_now(now, NULL);
    FUZZ_CHECK(!may || (now->n_devices <= LIMIT_DEVICES && now->n_uses <= LIMIT_CLUSTER_INSTANCES));
    hostile_refused += !may;
    message_free(message);
}

/* ---- what it says ---- */

static char *drawn_node(struct proposed *f)
{
    static char nobody[] = "ff00ff00";
    char *const nodes[] = {admin_id, peer_id, nobody};
    return nodes[hostile_draw(&f->in) % 3];
}

static void draw_node_event(struct proposed *f, Cluster__Event *event, struct buffer *out)
{
    static char device[] = "cpu";
    Cluster__Node node = CLUSTER__NODE__INIT;
    Cluster__NodeName name = CLUSTER__NODE_NAME__INIT;
    Cluster__NodeRole role;
    Cluster__Device one = CLUSTER__DEVICE__INIT, *devices[] = {&one, &one};
    one.id = device;
    node.id = node.name = name.id = drawn_node(f);
    node.devices = devices;
    node.n_devices = hostile_draw(&f->in) % 3;
    node.has_member = node.has_level = true;
    node.member = ADMIN_MEMBER + hostile_draw(&f->in) % 4;
    node.level = hostile_draw(&f->in);
    fill_role(&role, name.id, (Cluster__Role)(hostile_draw(&f->in) % 2));
    switch (hostile_draw(&f->in) % 5) {
    case 0:
        event->kind_case = CLUSTER__EVENT__KIND_NODE_JOINED;
        event->node_joined = &node;
        break;
    case 1:
        event->kind_case = CLUSTER__EVENT__KIND_NODE_ADMITTED;
        event->node_admitted = &name;
        break;
    case 2:
        /* It may take itself out, with its signature, and is no member then. */
        name.id = admin_id;
        event->kind_case = CLUSTER__EVENT__KIND_NODE_REMOVED;
        event->node_removed = &name;
        break;
    case 3:
        event->kind_case = CLUSTER__EVENT__KIND_NODE_ROLE;
        event->node_role = &role;
        break;
    default:
        event->kind_case = CLUSTER__EVENT__KIND_NODE_UPDATED;
        event->node_updated = &node;
        break;
    }
    event_encode(event, out);
}

static void draw_other_event(struct proposed *f, Cluster__Event *event, struct buffer *out)
{
    static uint8_t bytes[PUBLIC_KEY_BYTES] = {3};
    Cluster__TokenHash token = CLUSTER__TOKEN_HASH__INIT;
    Cluster__Token made = CLUSTER__TOKEN__INIT;
    Cluster__AuthorityRotated rotated = CLUSTER__AUTHORITY_ROTATED__INIT;
    Cluster__Refounded refounded = CLUSTER__REFOUNDED__INIT;
    token.has_hash = made.has_hash = rotated.has_public_key = true;
    token.hash = made.hash = rotated.public_key = (ProtobufCBinaryData){sizeof bytes, bytes};
    made.name = drawn_node(f);
    switch (hostile_draw(&f->in) % 4) {
    case 0:
        event->kind_case = CLUSTER__EVENT__KIND_TOKEN_CREATED;
        event->token_created = &made;
        break;
    case 1:
        event->kind_case = CLUSTER__EVENT__KIND_TOKEN_REVOKED;
        event->token_revoked = &token;
        break;
    case 2:
        event->kind_case = CLUSTER__EVENT__KIND_AUTHORITY_ROTATED;
        event->authority_rotated = &rotated;
        break;
    default:
        event->kind_case = CLUSTER__EVENT__KIND_REFOUNDED;
        event->refounded = &refounded;
        break;
    }
    event_encode(event, out);
}

static void draw_event(struct proposed *f, struct buffer *out)
{
    Cluster__Event event = CLUSTER__EVENT__INIT;
    event.by = hostile_draw(&f->in) % 4 ? peer_id : admin_id;
    event.has_nonce = true;
    event.nonce = hostile_draw(&f->in);
    if (hostile_draw(&f->in) % 3)
        draw_node_event(f, &event, out);
    else
        draw_other_event(f, &event, out);
    const unsigned how = hostile_draw(&f->in) % 16;
    if (how == 0) /* its own signature; they take their time */
        proof_add(&f->state, &peer, out, NULL);
    else if (how < 4) /* a proof that was good once is the last field of an event */
        buffer_append(out, seen.data + seen.size / 2, seen.size - seen.size / 2);
}

static void hostile_speak(struct proposed *f)
{
    struct buffer bytes = {0};
    const unsigned what = hostile_draw(&f->in);
    if (what < 160) {
        draw_event(f, &bytes);
    } else if (what < 176) {
        buffer_append(&bytes, seen.data, seen.size);
    } else {
        for (unsigned n = hostile_draw(&f->in); n > 0 && f->in.at < f->in.end; n--) {
            const char byte = (char)hostile_draw(&f->in);
            buffer_append(&bytes, &byte, 1);
        }
    }
    FUZZ_CHECK(!bytes.failed);
    hostile_bend(&f->in, bytes.data, bytes.size);
    if (what < 208)
        take_proposal(f, &bytes);
    else if (what < 232)
        take_about(&bytes);
    else
        take_now(&bytes);
    buffer_deinit(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct proposed f = {.in = {data, data + size}};
    hostile_begin();
    open_cluster(&f);
    while (f.in.at < f.in.end)
        hostile_speak(&f);
    state_deinit(&f.state);
    buffer_deinit(&f.before);
    return 0;
}
