/* A plain member's API: an admin signs its certificate, for names that are the member's alone; it
 * is kept, shown again without an admin, and renewed. Whole nodes on one loop. */
#include "daemon_world.h"

#include "agreement/agreement.h"
#include "node/api_names.h"
#include "node/peers.h"
#include "trust/api_files.h"
#include "trust/pair_keeper.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static struct daemon_world *w;
static struct error err;

static int setup(void **state)
{
    w = daemon_world_open();
    return 0;
}

static int teardown(void **state)
{
    daemon_world_close(w);
    return 0;
}

static void start(int node, const struct daemon_options *options)
{
    if (daemon_world_start(w, node, options, &err))
        fail_msg("node %d: %s", node, err.text);
}

/* It is linked to the other, and both are in its state. */
static bool are_two(void *arg)
{
    struct daemon *daemon = w->nodes[*(const int *)arg].daemon;
    const struct state *state = daemon_state(daemon);
    bool linked = false;
    for (const struct peer *peer = daemon->peers; peer; peer = peer->next)
        linked = linked || peer->link;
    return state->root && state->root->n_nodes == 2 && state_has_roles(state) && linked &&
           state_node(state, daemon->id) && state_node(state, daemon->id)->node->n_addresses;
}

static void await_two(void)
{
    for (int i = 0; i < 2; i++) {
        if (!daemon_world_run(w, are_two, &i, 15000))
            fail_msg("node %d does not see two nodes", i);
    }
}

static bool may_invite(void *arg)
{
    return strstr(ask(w, 0, "{\"do\":\"invite\"}"), "\"code\":\"") != NULL;
}

/* node0 is an admin, node1 a plain member. */
static void start_two(void)
{
    char code[16], address[32];
    start(0, &(struct daemon_options){0});
    assert_true(daemon_world_run(w, may_invite, NULL, 15000));
    assert_int_equal(sscanf(ask(w, 0, "{\"do\":\"invite\"}"), "{\"code\":\"%15[^\"]\"", code), 1);
    snprintf(address, sizeof address, "127.0.0.1:%u", w->nodes[0].daemon->port);
    start(1, &(struct daemon_options){.peers = {address}, .n_peers = 1, .join_code = code});
    await_two();
    assert_null(w->nodes[1].daemon->membership.authority.key);
}

/* ---- what is shown ---- */

struct issuing {
    const struct pair_source *source;
    const struct served_names *names;
    struct tls_pair pair;
};

static bool is_issued(void *arg)
{
    struct issuing *issuing = arg;
    return issuing->source->issue(issuing->source->self, issuing->names, daemon_wall_ms() / 1000,
                                  &issuing->pair, &err) == ERROR_NONE;
}

static struct tls_pair await_issued(int node, const struct served_names *names, uint64_t ms)
{
    const struct pair_source source = daemon_api_source(w->nodes[node].daemon);
    struct issuing issuing = {.source = &source, .names = names};
    assert_true(source.version(source.self));
    if (!daemon_world_run(w, is_issued, &issuing, ms))
        fail_msg("node %d has no certificate: %s", node, err.text);
    return issuing.pair;
}

static bool is_for(X509 *certificate, const char *name)
{
    return X509_check_host(certificate, name, 0, 0, NULL) == 1 ||
           X509_check_ip_asc(certificate, name, 0) == 1;
}

/* What `medley ca export` prints for the node's folder first. */
static X509 *exported(int node)
{
    struct buffer text = {0};
    if (api_files_export(w->nodes[node].folder, &text, &err))
        fail_msg("export: %s", err.text);
    assert_null(strstr(text.data, "PRIVATE"));
    BIO *bio = BIO_new_mem_buf(text.data, (int)text.size);
    X509 *certificate = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    BIO_free(bio);
    buffer_deinit(&text);
    return certificate;
}

static struct served_names usual_names(void)
{
    struct served_names names = {0};
    served_names_add_machine(&names, "node1");
    served_names_add(&names, "127.0.0.1");
    served_names_add(&names, "printer.lan"); /* nobody's: left out */
    served_names_add(&names, "node0.local"); /* another's: an honest member does not even ask */
    return names;
}

static void an_admin_signs_for_a_plain_member(void **state)
{
    const struct served_names names = usual_names();
    char path[128];
    struct stat file;
    start_two();
    struct tls_pair theirs = await_issued(0, &names, 100), mine = await_issued(1, &names, 15000);
    X509 *first = exported(0), *second = exported(1);
    assert_int_equal(X509_cmp(first, second), 0);
    assert_int_equal(X509_verify(mine.certificate, X509_get0_pubkey(first)), 1);
    assert_int_equal(X509_check_private_key(mine.certificate, mine.key), 1);
    assert_true(is_for(mine.certificate, "node1.local"));
    assert_true(is_for(mine.certificate, "127.0.0.1"));
    assert_false(is_for(mine.certificate, "printer.lan"));
    assert_false(is_for(mine.certificate, "node0.local"));
    snprintf(path, sizeof path, "%s/api/signed.pem", w->nodes[1].folder);
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(file.st_mode & 0777, 0600);
    tls_pair_deinit(&theirs);
    tls_pair_deinit(&mine);
    X509_free(first);
    X509_free(second);
}

/* The keeper falls back, says so, and takes what is signed when it is there. */
static void without_an_admin_the_last_is_shown(void **state)
{
    const struct served_names names = usual_names();
    struct pair_keeper keeper;
    start_two();
    struct tls_pair signed_pair = await_issued(1, &names, 15000);
    daemon_world_stop(w, 0);
    daemon_world_stop(w, 1);
    start(1, &(struct daemon_options){0});
    const struct pair_keeper_options options = {.host = "127.0.0.1",
                                                .state_folder = w->nodes[1].folder,
                                                .node_name = "node1",
                                                .source = daemon_api_source(w->nodes[1].daemon)};
    const uint64_t now_s = daemon_wall_ms() / 1000;
    assert_int_equal(pair_keeper_init(&keeper, &options, now_s, &err), ERROR_NONE);
    assert_int_equal(X509_cmp(keeper.pair.certificate, signed_pair.certificate), 0);
    assert_false(pair_keeper_step(&keeper, now_s + 1));
    assert_int_equal(X509_cmp(keeper.pair.certificate, signed_pair.certificate), 0);
    pair_keeper_deinit(&keeper);
    /* one that is spoilt is not shown, and not an end of the node either */
    char path[128];
    snprintf(path, sizeof path, "%s/api/signed.pem", w->nodes[1].folder);
    FILE *file = fopen(path, "w");
    fputs("nothing", file);
    fclose(file);
    daemon_world_stop(w, 1);
    start(1, &(struct daemon_options){0});
    struct pair_keeper_options again = options;
    again.source = daemon_api_source(w->nodes[1].daemon);
    assert_int_equal(pair_keeper_init(&keeper, &again, now_s, &err), ERROR_NONE);
    assert_true(keeper.shows_own);
    pair_keeper_deinit(&keeper);
    tls_pair_deinit(&signed_pair);
}

/* ---- a member that lies ---- */

static bool was_answered;
static char problem[256];

static void on_lie_answered(struct daemon *daemon, const Node__SignAnswer *answer,
                            const struct error *why)
{
    was_answered = true;
    snprintf(problem, sizeof problem, "%s", why ? why->text : "");
}

static bool is_answered(void *arg)
{
    return was_answered;
}

/* Why node0 refuses; "": it has signed. */
static const char *ask_for(char *name, char *address, const uint8_t *point, size_t n_point)
{
    struct daemon *daemon = w->nodes[1].daemon;
    Node__SignRequest request = NODE__SIGN_REQUEST__INIT;
    Node__ApiNames names = NODE__API_NAMES__INIT;
    uint8_t authority[PUBLIC_KEY_BYTES];
    struct buffer bytes = {0};
    names.names = &name;
    names.n_names = name != NULL;
    names.addresses = &address;
    names.n_addresses = address != NULL;
    message_encode(&names.base, &bytes);
    assert_int_equal(authority_public_key(&daemon->membership.authority, authority, &err), 0);
    request.has_what = request.has_public_key = request.has_request = request.has_authority = true;
    request.what = NODE__SIGN_WHAT__SIGN_API;
    request.public_key = (ProtobufCBinaryData){n_point, (uint8_t *)(uintptr_t)point};
    request.request = (ProtobufCBinaryData){bytes.size, (uint8_t *)bytes.data};
    request.authority = (ProtobufCBinaryData){sizeof authority, authority};
    was_answered = false;
    daemon_world_pass(w, SIGN_PAUSE_MS + 50);
    assert_int_equal(sign_ask(daemon, &request, on_lie_answered, &err), ERROR_NONE);
    buffer_deinit(&bytes);
    assert_true(daemon_world_run(w, is_answered, NULL, SIGN_WAIT_MS + 1000));
    return problem;
}

static void another_nodes_name_is_refused(void **state)
{
    EVP_PKEY *key;
    uint8_t point[API_POINT_BYTES];
    char mine[] = "node1.lan", theirs[] = "node0.local", nobodys[] = "printer.lan",
         bad[] = "x,DNS:evil.example", here[] = "127.0.0.1", far[] = "192.0.2.77";
    start_two();
    assert_int_equal(api_key_new(&key, point, &err), ERROR_NONE);
    assert_string_equal(ask_for(mine, here, point, sizeof point), "");
    assert_non_null(strstr(ask_for(theirs, here, point, sizeof point), "another node"));
    assert_non_null(strstr(ask_for(nobodys, NULL, point, sizeof point), "this node's alone"));
    assert_non_null(strstr(ask_for(NULL, far, point, sizeof point), "this node's alone"));
    assert_non_null(strstr(ask_for(bad, here, point, sizeof point), "no names"));
    assert_non_null(strstr(ask_for(mine, NULL, point, sizeof point - 1), "no public key"));
    point[40] ^= 1; /* off the curve */
    assert_non_null(strstr(ask_for(mine, NULL, point, sizeof point), "no public key"));
    api_key_free(key);
}

/* ---- what the state says of names; pure ---- */

static void names_of_two_are_nobodys(void **unused)
{
    char *here[] = {(char[]){"10.0.0.1:7979"}, (char[]){"172.17.0.1:7979"}},
         *there[] = {(char[]){"[2001:db8::2]:7979"}, (char[]){"172.17.0.1:7979"}};
    char ids[2][NODE_ID_TEXT], *names[] = {(char[]){"pi"}, (char[]){"pi"}};
    Cluster__Node nodes[2];
    Cluster__NodeRecord records[2], *list[2];
    Cluster__State root = CLUSTER__STATE__INIT;
    for (int i = 0; i < 2; i++) {
        memset(ids[i], '1' + i, sizeof ids[i]);
        ids[i][NODE_ID_TEXT - 1] = 0;
        cluster__node__init(&nodes[i]);
        cluster__node_record__init(&records[i]);
        nodes[i].id = ids[i];
        nodes[i].name = names[i];
        nodes[i].addresses = i ? there : here;
        nodes[i].n_addresses = 2;
        records[i].node = &nodes[i];
        list[i] = &records[i];
    }
    root.nodes = list;
    root.n_nodes = 2;
    const struct state state = {.root = &root};
    struct served_names asked = {0}, granted;
    served_names_add_machine(&asked, "pi");
    served_names_add(&asked, "localhost");
    served_names_add(&asked, "10.0.0.1");
    served_names_add(&asked, "172.17.0.1");
    served_names_add(&asked, "127.0.0.53");
    assert_int_equal(api_names_grant(&state, ids[0], &asked, &granted, &err), ERROR_NONE);
    assert_int_equal(granted.n_names, 1);
    assert_string_equal(granted.names[0], "localhost");
    assert_int_equal(granted.n_addresses, 2);
    assert_string_equal(granted.addresses[0], "10.0.0.1");
    assert_string_equal(granted.addresses[1], "127.0.0.53");
    names[0][1] = 'o'; /* "po": now pi is the other's alone */
    assert_int_equal(api_names_grant(&state, ids[0], &asked, &granted, &err), ERROR_INVALID);
    assert_int_equal(api_names_own(&state, ids[0], &asked, &granted, &err), ERROR_NONE);
    assert_int_equal(granted.n_names, 1);
    assert_int_equal(api_names_grant(&state, ids[1], &asked, &granted, &err), ERROR_NONE);
    assert_string_equal(granted.names[0], "pi");
    assert_int_equal(api_names_grant(&state, "nobody", &asked, &granted, &err), ERROR_NOT_FOUND);
    asked = (struct served_names){0};
    assert_int_equal(api_names_grant(&state, ids[1], &asked, &granted, &err), ERROR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_two_are_nobodys),
        cmocka_unit_test_setup_teardown(an_admin_signs_for_a_plain_member, setup, teardown),
        cmocka_unit_test_setup_teardown(without_an_admin_the_last_is_shown, setup, teardown),
        cmocka_unit_test_setup_teardown(another_nodes_name_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
