/* Who may change who belongs to the cluster: what a plain member, a removed admin or a leader that
 * is neither can make of events, and what every node that applies them says to it. */
#include "base/limits.h"
#include "base/mem.h"
#include "cluster/proof.h"
#include "trust/authority.h"
#include "trust/signature.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { ADMIN, OTHER_ADMIN, PLAIN, STRANGER, N_PERSONS };

static struct person {
    struct identity identity;
    char id[NODE_ID_TEXT];
} persons[N_PERSONS];

static uint8_t cluster[CLUSTER_ID_BYTES] = "this cluster..", authority[PUBLIC_KEY_BYTES] = {7};
static struct state state;
static uint64_t last_index;
static struct state_outcome outcome;
static struct error err;

/* ---- events ---- */

struct said {
    Cluster__Event event;
    union {
        Cluster__Node node;
        Cluster__NodeName name;
        Cluster__NodeRole role;
        Cluster__AuthorityRotated rotated;
        Cluster__AuthorityRetired retired;
    };
};

static void say_node_joined(struct said *said, const char *id)
{
    *said = (struct said){.event = CLUSTER__EVENT__INIT, .node = CLUSTER__NODE__INIT};
    said->event.kind_case = CLUSTER__EVENT__KIND_NODE_JOINED;
    said->event.node_joined = &said->node;
    said->node.id = (char *)(uintptr_t)id;
    said->node.name = (char *)(uintptr_t)"somebody";
}

static void say_name(struct said *said, Cluster__Event__KindCase kind, const char *id)
{
    *said = (struct said){.event = CLUSTER__EVENT__INIT, .name = CLUSTER__NODE_NAME__INIT};
    said->event.kind_case = kind;
    said->event.node_admitted = &said->name; /* of both kinds */
    said->name.id = (char *)(uintptr_t)id;
}

static void say_role(struct said *said, const char *id, Cluster__Role role)
{
    *said = (struct said){.event = CLUSTER__EVENT__INIT, .role = CLUSTER__NODE_ROLE__INIT};
    said->event.kind_case = CLUSTER__EVENT__KIND_NODE_ROLE;
    said->event.node_role = &said->role;
    said->role.id = (char *)(uintptr_t)id;
    said->role.has_role = said->role.has_cluster = said->role.has_authority = true;
    said->role.role = role;
    said->role.cluster = (ProtobufCBinaryData){sizeof cluster, cluster};
    said->role.authority = (ProtobufCBinaryData){sizeof authority, authority};
}

/* As `author` says it, with the signature of `signer` (-1: without). */
static struct buffer event_of(struct said *said, int author, int signer)
{
    static uint64_t nonce;
    struct buffer bytes = {0};
    said->event.by = persons[author].id;
    said->event.has_nonce = true;
    said->event.nonce = ++nonce;
    event_encode(&said->event, &bytes);
    if (signer >= 0)
        assert_int_equal(proof_add(&state, &persons[signer].identity, &bytes, &err), ERROR_NONE);
    assert_false(bytes.failed);
    return bytes;
}

static void apply_bytes(const struct buffer *bytes)
{
    const enum error_code code = state_apply(&state, ++last_index, (const uint8_t *)bytes->data,
                                             bytes->size, &outcome, &err);
    assert_int_equal(code, ERROR_NONE);
}

static bool apply(struct said *said, int author, int signer)
{
    struct buffer bytes = event_of(said, author, signer);
    apply_bytes(&bytes);
    buffer_deinit(&bytes);
    return outcome.applied;
}

static bool let_in(int who, int author, int signer)
{
    struct said said;
    say_node_joined(&said, persons[who].id);
    const bool joined = apply(&said, author, signer);
    say_name(&said, CLUSTER__EVENT__KIND_NODE_ADMITTED, persons[who].id);
    return apply(&said, author, signer) && joined;
}

static bool remove_node(int who, int author, int signer)
{
    struct said said;
    say_name(&said, CLUSTER__EVENT__KIND_NODE_REMOVED, persons[who].id);
    return apply(&said, author, signer);
}

static bool give_role(int who, Cluster__Role role, int author, int signer)
{
    struct said said;
    say_role(&said, persons[who].id, role);
    return apply(&said, author, signer);
}

/* ---- a cluster of an admin and a plain member ---- */

static int setup(void **unused)
{
    static bool made;
    for (int i = 0; i < N_PERSONS && !made; i++) {
        assert_int_equal(identity_make(&persons[i].identity, &err), ERROR_NONE);
        id_text(persons[i].identity.node_id, NODE_ID_BYTES, persons[i].id);
    }
    made = true;
    last_index = 0;
    assert_true(let_in(ADMIN, ADMIN, -1));
    assert_false(state_has_roles(&state));
    assert_true(give_role(ADMIN, CLUSTER__ROLE__ADMIN, ADMIN, ADMIN));
    assert_true(let_in(PLAIN, ADMIN, ADMIN));
    assert_true(state_has_roles(&state) && state_n_admins(&state) == 1);
    assert_true(state_is_admin(&state, persons[ADMIN].id));
    assert_false(state_is_admin(&state, persons[PLAIN].id));
    return 0;
}

static int teardown(void **unused)
{
    state_deinit(&state);
    return 0;
}

static void forget_identities(void)
{
    for (int i = 0; i < N_PERSONS; i++)
        identity_deinit(&persons[i].identity);
}

/* ---- what is refused ---- */

/* As a leader that is a plain member might append it. */
static void a_plain_member_changes_nothing(void **unused)
{
    static const int signers[] = {-1, PLAIN, STRANGER};
    for (int author = ADMIN; author <= PLAIN; author++) {
        for (size_t i = 0; i < sizeof signers / sizeof *signers; i++) {
            assert_false(let_in(STRANGER, author, signers[i]));
            assert_null(state_node(&state, persons[STRANGER].id));
            assert_false(remove_node(ADMIN, author, signers[i]));
            assert_false(give_role(PLAIN, CLUSTER__ROLE__ADMIN, author, signers[i]));
            assert_false(give_role(ADMIN, CLUSTER__ROLE__MEMBER, author, signers[i]));
        }
    }
    assert_true(state_is_admin(&state, persons[ADMIN].id) && state_n_admins(&state) == 1);
    assert_non_null(state_node(&state, persons[PLAIN].id));
}

static void a_signature_counts_once(void **unused)
{
    struct said said;
    say_node_joined(&said, persons[STRANGER].id);
    assert_true(apply(&said, ADMIN, ADMIN));
    say_name(&said, CLUSTER__EVENT__KIND_NODE_ADMITTED, persons[STRANGER].id);
    struct buffer admit = event_of(&said, ADMIN, ADMIN);
    apply_bytes(&admit);
    assert_true(outcome.applied);
    say_role(&said, persons[STRANGER].id, CLUSTER__ROLE__ADMIN);
    struct buffer promote = event_of(&said, ADMIN, ADMIN);
    apply_bytes(&promote);
    assert_true(outcome.applied);
    assert_true(give_role(STRANGER, CLUSTER__ROLE__MEMBER, ADMIN, ADMIN));
    apply_bytes(&promote);
    assert_ptr_equal(outcome.reason, proof_is_late);
    assert_false(state_is_admin(&state, persons[STRANGER].id));
    assert_true(remove_node(STRANGER, ADMIN, ADMIN));
    apply_bytes(&admit);
    assert_ptr_equal(outcome.reason, proof_is_late);
    assert_null(state_node(&state, persons[STRANGER].id));
    buffer_deinit(&admit);
    buffer_deinit(&promote);
}

/* Signed, but without sense when it came: the leader cannot keep it for the moment when it has. */
static void what_made_no_sense_cannot_come_again(void **unused)
{
    struct said said;
    say_name(&said, CLUSTER__EVENT__KIND_NODE_ADMITTED, persons[STRANGER].id);
    struct buffer admit = event_of(&said, ADMIN, ADMIN);
    apply_bytes(&admit);
    assert_string_equal(outcome.reason, "there is no such node");
    say_node_joined(&said, persons[STRANGER].id);
    assert_true(apply(&said, ADMIN, ADMIN));
    apply_bytes(&admit);
    assert_ptr_equal(outcome.reason, proof_is_late);
    buffer_deinit(&admit);
}

static void another_clusters_signature_is_not_good(void **unused)
{
    struct said said;
    say_name(&said, CLUSTER__EVENT__KIND_NODE_REMOVED, persons[PLAIN].id);
    cluster[0] ^= 1;
    memcpy(state.root->cluster.data, cluster, sizeof cluster);
    struct buffer there = event_of(&said, ADMIN, ADMIN);
    cluster[0] ^= 1;
    memcpy(state.root->cluster.data, cluster, sizeof cluster);
    apply_bytes(&there);
    assert_string_equal(outcome.reason, "its signature is not good");
    assert_non_null(state_node(&state, persons[PLAIN].id));
    buffer_deinit(&there);
}

/* Of a log that was given up: its events do not come back into the one that was founded anew. */
static void another_generations_signature_is_late(void **unused)
{
    struct said said;
    struct buffer refounded = {0};
    Cluster__Event event = CLUSTER__EVENT__INIT;
    Cluster__Refounded anew = CLUSTER__REFOUNDED__INIT;
    say_name(&said, CLUSTER__EVENT__KIND_NODE_REMOVED, persons[PLAIN].id);
    struct buffer before = event_of(&said, ADMIN, ADMIN);
    anew.has_generation = anew.has_founder = true;
    anew.generation = 2, anew.founder = 5;
    event.kind_case = CLUSTER__EVENT__KIND_REFOUNDED;
    event.refounded = &anew;
    event_encode(&event, &refounded);
    apply_bytes(&refounded);
    assert_true(outcome.applied);
    apply_bytes(&before);
    assert_ptr_equal(outcome.reason, proof_is_late);
    assert_true(remove_node(PLAIN, ADMIN, ADMIN));
    buffer_deinit(&before);
    buffer_deinit(&refounded);
}

static void who_was_an_admin_is_none_any_more(void **unused)
{
    assert_true(let_in(OTHER_ADMIN, ADMIN, ADMIN));
    assert_true(give_role(OTHER_ADMIN, CLUSTER__ROLE__ADMIN, ADMIN, ADMIN));
    assert_true(give_role(PLAIN, CLUSTER__ROLE__ADMIN, OTHER_ADMIN, OTHER_ADMIN));
    assert_true(give_role(OTHER_ADMIN, CLUSTER__ROLE__MEMBER, ADMIN, ADMIN));
    assert_false(let_in(STRANGER, OTHER_ADMIN, OTHER_ADMIN));
    assert_string_equal(outcome.reason, "who signed it is not an admin");
    assert_true(remove_node(PLAIN, ADMIN, ADMIN));
    assert_false(let_in(STRANGER, PLAIN, PLAIN));
    assert_string_equal(outcome.reason, "who signed it is not an admin");
    assert_false(remove_node(ADMIN, PLAIN, PLAIN));
}

static void one_admin_stays(void **unused)
{
    static const char last[] = "it is the last admin: make another node one first";
    assert_false(give_role(ADMIN, CLUSTER__ROLE__MEMBER, ADMIN, ADMIN));
    assert_string_equal(outcome.reason, last);
    assert_false(remove_node(ADMIN, ADMIN, ADMIN));
    assert_string_equal(outcome.reason, last);
    assert_true(give_role(PLAIN, CLUSTER__ROLE__ADMIN, ADMIN, ADMIN));
    assert_true(remove_node(ADMIN, ADMIN, ADMIN));
    assert_true(state_n_admins(&state) == 1);
}

/* A node takes itself out without an admin, and nobody else. */
static void a_plain_member_may_leave(void **unused)
{
    assert_true(let_in(STRANGER, ADMIN, ADMIN));
    assert_false(remove_node(STRANGER, PLAIN, PLAIN));
    assert_false(remove_node(PLAIN, PLAIN, STRANGER));
    assert_false(remove_node(PLAIN, PLAIN, -1));
    assert_true(remove_node(PLAIN, PLAIN, PLAIN));
}

/* No bit of it means anything else than what was signed. */
static void no_bit_can_be_changed(void **unused)
{
    struct said said;
    say_name(&said, CLUSTER__EVENT__KIND_NODE_REMOVED, persons[PLAIN].id);
    struct buffer bytes = event_of(&said, ADMIN, ADMIN);
    uint32_t n = 0;
    for (size_t bit = 0; bit < bytes.size * 8; bit++) {
        bytes.data[bit / 8] = (char)(bytes.data[bit / 8] ^ 1 << bit % 8);
        apply_bytes(&bytes);
        n += outcome.applied && !state_node(&state, persons[PLAIN].id);
        bytes.data[bit / 8] = (char)(bytes.data[bit / 8] ^ 1 << bit % 8);
    }
    assert_int_equal(n, 0);
    /* Nor may anything follow, or come a second time. */
    const size_t size = bytes.size;
    buffer_append(&bytes, "\xca\x02\x01x", 4);
    apply_bytes(&bytes);
    assert_false(outcome.applied);
    bytes.size = size;
    apply_bytes(&bytes);
    assert_true(outcome.applied);
    buffer_deinit(&bytes);
}

/* ---- the authority ---- */

static struct authority first_authority;

/* `next` as the one after `old`, whose key signs for it. */
static bool rotate(const struct authority *old, const struct authority *next, int author,
                   int signer)
{
    struct said said = {.event = CLUSTER__EVENT__INIT, .rotated = CLUSTER__AUTHORITY_ROTATED__INIT};
    uint8_t public_key[PUBLIC_KEY_BYTES], signature[SIGNATURE_BYTES];
    struct buffer certificate = {0};
    assert_int_equal(authority_public_key(next, public_key, &err), ERROR_NONE);
    assert_int_equal(authority_endorse(old, public_key, signature, &err), ERROR_NONE);
    assert_int_equal(certificate_encode(next->certificate, &certificate, &err), ERROR_NONE);
    said.event.kind_case = CLUSTER__EVENT__KIND_AUTHORITY_ROTATED;
    said.event.authority_rotated = &said.rotated;
    said.event.has_time_ms = true;
    said.event.time_ms = 1000;
    said.rotated.has_certificate = said.rotated.has_public_key = said.rotated.has_signature = true;
    said.rotated.certificate = (ProtobufCBinaryData){certificate.size, (uint8_t *)certificate.data};
    said.rotated.public_key = (ProtobufCBinaryData){sizeof public_key, public_key};
    said.rotated.signature = (ProtobufCBinaryData){sizeof signature, signature};
    said.rotated.has_grace_ms = true;
    said.rotated.grace_ms = 500;
    const bool done = apply(&said, author, signer);
    buffer_deinit(&certificate);
    return done;
}

static bool retire(const struct authority *old, int author, int signer)
{
    struct said said = {.event = CLUSTER__EVENT__INIT, .retired = CLUSTER__AUTHORITY_RETIRED__INIT};
    uint8_t public_key[PUBLIC_KEY_BYTES];
    assert_int_equal(authority_public_key(old, public_key, &err), ERROR_NONE);
    said.event.kind_case = CLUSTER__EVENT__KIND_AUTHORITY_RETIRED;
    said.event.authority_retired = &said.retired;
    said.retired.has_public_key = true;
    said.retired.public_key = (ProtobufCBinaryData){sizeof public_key, public_key};
    return apply(&said, author, signer);
}

static int setup_authority(void **unused)
{
    assert_int_equal(authority_make(&first_authority, &err), ERROR_NONE);
    memcpy(cluster, first_authority.cluster_id, sizeof cluster);
    assert_int_equal(authority_public_key(&first_authority, authority, &err), ERROR_NONE);
    return setup(unused);
}

static int teardown_authority(void **unused)
{
    authority_deinit(&first_authority);
    return teardown(unused);
}

static void the_authority_is_replaced_by_its_own_word(void **unused)
{
    struct authority second, third, foreign;
    struct buffer snapshot = {0};
    assert_int_equal(authority_make_next(&first_authority, &second, &err), ERROR_NONE);
    assert_int_equal(authority_make_next(&first_authority, &third, &err), ERROR_NONE);
    assert_int_equal(authority_make(&foreign, &err), ERROR_NONE);
    assert_false(rotate(&first_authority, &second, PLAIN, PLAIN));
    assert_false(rotate(&first_authority, &second, ADMIN, PLAIN));
    assert_false(rotate(&second, &second, ADMIN, ADMIN)); /* it signs for itself */
    assert_string_equal(outcome.reason, "the old authority has not signed for the new one");
    assert_false(rotate(&foreign, &second, ADMIN, ADMIN));
    assert_false(retire(&first_authority, ADMIN, ADMIN));
    assert_true(rotate(&first_authority, &second, ADMIN, ADMIN));
    assert_true(authority_is(&second, state.root->authority.data));
    assert_true(authority_is(&first_authority, state.root->former_authority.data));
    assert_true(state.root->former_until_ms == 1500);
    assert_false(rotate(&second, &third, ADMIN, ADMIN)); /* one at a time */
    assert_false(retire(&second, ADMIN, ADMIN));
    assert_false(retire(&first_authority, PLAIN, PLAIN));
    state_encode(&state, &snapshot);
    assert_int_equal(state_decode(&state, (const uint8_t *)snapshot.data, snapshot.size, &err),
                     ERROR_NONE);
    assert_true(retire(&first_authority, ADMIN, ADMIN));
    assert_false(state.root->has_former_authority);
    assert_false(rotate(&first_authority, &third, ADMIN, ADMIN)); /* it is worth nothing */
    assert_true(rotate(&second, &third, ADMIN, ADMIN));
    buffer_deinit(&snapshot);
    authority_deinit(&second);
    authority_deinit(&third);
    authority_deinit(&foreign);
}

/* ---- who was removed ---- */

/* Also on a node that has it from a snapshot alone. */
static void removed_is_for_good_after_a_snapshot(void **unused)
{
    struct buffer snapshot = {0};
    assert_true(remove_node(PLAIN, ADMIN, ADMIN));
    state_encode(&state, &snapshot);
    state_deinit(&state);
    assert_int_equal(state_decode(&state, (const uint8_t *)snapshot.data, snapshot.size, &err),
                     ERROR_NONE);
    buffer_deinit(&snapshot);
    assert_true(state_was_removed(&state, persons[PLAIN].id));
    assert_false(let_in(PLAIN, ADMIN, ADMIN));
    assert_null(state_node(&state, persons[PLAIN].id));
}

static void the_oldest_removal_gives_way(void **unused)
{
    char id[32];
    for (unsigned i = 0; i <= LIMIT_CLUSTER_REMOVED; i++) {
        struct said said;
        snprintf(id, sizeof id, "guest%u", i);
        say_node_joined(&said, id);
        assert_true(apply(&said, ADMIN, ADMIN));
        say_name(&said, CLUSTER__EVENT__KIND_NODE_REMOVED, id);
        assert_true(apply(&said, ADMIN, ADMIN));
    }
    assert_true(state.root->n_removed == LIMIT_CLUSTER_REMOVED);
    assert_false(state_was_removed(&state, "guest0"));
    assert_true(state_was_removed(&state, "guest1") && state_was_removed(&state, id));
    struct buffer snapshot = {0};
    struct state copy = {0};
    state_encode(&state, &snapshot);
    assert_int_equal(state_decode(&copy, (const uint8_t *)snapshot.data, snapshot.size, &err),
                     ERROR_NONE);
    buffer_deinit(&snapshot);
    state_deinit(&copy);
}

/* ---- a cluster of before ---- */

static void before_there_are_roles_everybody_may(void **unused)
{
    state_deinit(&state);
    assert_true(let_in(ADMIN, ADMIN, -1));
    assert_true(let_in(PLAIN, ADMIN, -1));
    assert_true(state_is_admin(&state, persons[PLAIN].id));
    assert_false(give_role(PLAIN, CLUSTER__ROLE__MEMBER, ADMIN, -1));
    assert_false(give_role(PLAIN, CLUSTER__ROLE__MEMBER, STRANGER, STRANGER));
    assert_false(state_has_roles(&state));
    assert_true(let_in(OTHER_ADMIN, PLAIN, -1));
    assert_true(give_role(PLAIN, CLUSTER__ROLE__MEMBER, ADMIN, ADMIN));
    assert_true(state_has_roles(&state) && state_n_admins(&state) == 2);
    assert_true(state_is_admin(&state, persons[OTHER_ADMIN].id));
    assert_false(state_is_admin(&state, persons[PLAIN].id));
    assert_false(let_in(STRANGER, PLAIN, -1));
    assert_true(let_in(STRANGER, OTHER_ADMIN, OTHER_ADMIN));
    assert_false(state_is_admin(&state, persons[STRANGER].id));
}

/* ---- memory ---- */

static void a_signed_event_without_memory_can_come_again(void **unused)
{
    struct said said;
    say_name(&said, CLUSTER__EVENT__KIND_NODE_REMOVED, persons[PLAIN].id);
    struct buffer bytes = event_of(&said, ADMIN, ADMIN);
    last_index++;
    for (unsigned nth = 1;; nth++) {
        mem_fail_nth(nth);
        const enum error_code code = state_apply(&state, last_index, (const uint8_t *)bytes.data,
                                                 bytes.size, &outcome, &err);
        mem_fail_nth(0);
        if (code == ERROR_NONE)
            break;
        assert_int_equal(code, ERROR_NO_MEMORY);
        assert_non_null(state_node(&state, persons[PLAIN].id));
        assert_true(nth < 100);
    }
    assert_true(outcome.applied);
    buffer_deinit(&bytes);
}

#define ROLES_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROLES_TEST(a_plain_member_changes_nothing),
        ROLES_TEST(a_signature_counts_once),
        ROLES_TEST(what_made_no_sense_cannot_come_again),
        ROLES_TEST(another_clusters_signature_is_not_good),
        ROLES_TEST(another_generations_signature_is_late),
        ROLES_TEST(who_was_an_admin_is_none_any_more),
        ROLES_TEST(one_admin_stays),
        ROLES_TEST(a_plain_member_may_leave),
        ROLES_TEST(no_bit_can_be_changed),
        cmocka_unit_test_setup_teardown(the_authority_is_replaced_by_its_own_word, setup_authority,
                                        teardown_authority),
        ROLES_TEST(removed_is_for_good_after_a_snapshot),
        ROLES_TEST(the_oldest_removal_gives_way),
        ROLES_TEST(before_there_are_roles_everybody_may),
        ROLES_TEST(a_signed_event_without_memory_can_come_again),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    forget_identities();
    return failed;
}
