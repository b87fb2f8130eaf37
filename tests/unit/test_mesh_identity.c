/* mesh: key pairs and memberships, and the files they are kept in. */
#include "base/limits.h"
#include "mesh_world.h"
#include "trust/identity_files.h"
#include "trust/secret_files.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char root[64], folder[128], key_path[160], membership_path[160];

static void run(const char *command)
{
    assert_int_equal(system(command), 0);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/medley-identity-XXXXXX");
    if (!mkdtemp(root))
        return -1;
    snprintf(folder, sizeof folder, "%s/state/identity", root);
    snprintf(key_path, sizeof key_path, "%s/node.key", folder);
    snprintf(membership_path, sizeof membership_path, "%s/membership.pem", folder);
    setenv("ROOT", root, 1);
    setenv("FOLDER", folder, 1);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    run("rm -rf $ROOT");
    return 0;
}

static void open_good(struct identity *identity, bool expect_made)
{
    struct error err = {0};
    bool made;
    if (identity_open(folder, identity, &made, &err))
        fail_msg("%s", err.text);
    assert_int_equal(made, expect_made);
}

static void assert_refused(const char *part)
{
    struct identity identity;
    struct error err = {0};
    bool made;
    assert_int_not_equal(identity_open(folder, &identity, &made, &err), ERROR_NONE);
    if (!strstr(err.text, part))
        fail_msg("\"%s\" does not say \"%s\"", err.text, part);
    assert_null(identity.key);
    assert_false(made);
}

static unsigned mode_of(const char *path)
{
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    return file.st_mode & 07777;
}

/* ---- the node's key -------------------------------------------------------------------------- */

static void test_the_key_stays(void **state)
{
    (void)state;
    struct identity first, again;
    mode_t old = umask(0);
    open_good(&first, true);
    umask(old);
    open_good(&again, false);
    assert_memory_equal(first.node_id, again.node_id, NODE_ID_BYTES);
    assert_memory_equal(first.public_key, again.public_key, PUBLIC_KEY_BYTES);
    assert_int_equal(mode_of(folder), 0700);
    assert_int_equal(mode_of(key_path), 0600);
    uint8_t id[NODE_ID_BYTES];
    node_id_of(first.public_key, id);
    assert_memory_equal(id, first.node_id, NODE_ID_BYTES);
    identity_deinit(&first);
    identity_deinit(&again);
    run("test \"$(ls -A $FOLDER)\" = node.key");
}

static void test_a_umask_that_denies_all(void **state)
{
    (void)state;
    struct identity identity;
    run("mkdir -p -m 700 $FOLDER");
    mode_t old = umask(0777);
    open_good(&identity, true);
    umask(old);
    identity_deinit(&identity);
    assert_int_equal(mode_of(key_path), 0600);
    open_good(&identity, false);
    identity_deinit(&identity);
}

static void test_two_nodes_differ(void **state)
{
    (void)state;
    struct identity a, b;
    bool made;
    assert_int_equal(identity_open("", &a, &made, NULL), ERROR_NONE);
    assert_true(made);
    assert_int_equal(identity_open(NULL, &b, &made, NULL), ERROR_NONE);
    assert_memory_not_equal(a.node_id, b.node_id, NODE_ID_BYTES);
    identity_deinit(&a);
    identity_deinit(&b);
    identity_deinit(&b);
    identity_deinit(NULL);
}

static void test_what_others_can_read(void **state)
{
    (void)state;
    struct identity identity;
    char mend[256];
    open_good(&identity, true);
    identity_deinit(&identity);
    static const char *const modes[] = {"0640", "0604", "0620", "0602", "0610"};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        setenv("MODE", modes[i], 1);
        run("chmod $MODE $FOLDER/node.key");
        snprintf(mend, sizeof mend, "to fix that: chmod 600 '%s'", key_path);
        assert_refused(mend);
    }
    run("chmod 600 $FOLDER/node.key; chmod 750 $FOLDER");
    snprintf(mend, sizeof mend, "to fix that: chmod 700 '%s'", folder);
    assert_refused(mend);
    run("chmod 700 $FOLDER");
    open_good(&identity, false);
    identity_deinit(&identity);
}

static void test_another_owner(void **state)
{
    (void)state;
    struct identity identity;
    open_good(&identity, true);
    identity_deinit(&identity);
    if (chown(key_path, 12345, (gid_t)-1) != 0)
        skip(); /* only root may give files away */
    assert_refused("belongs to another user (number 12345)");
    assert_int_equal(chown(key_path, geteuid(), (gid_t)-1), 0);
    assert_int_equal(chown(folder, 12345, (gid_t)-1), 0);
    assert_refused("belongs to another user (number 12345)");
}

/* A damaged key is never replaced on its own. */
static void test_damage(void **state)
{
    (void)state;
    struct identity identity;
    open_good(&identity, true);
    identity_deinit(&identity);
    run("cp -p $FOLDER/node.key $ROOT/kept");
    static const char *const damages[] = {
        ": > $FOLDER/node.key",
        "head -c 60 $ROOT/kept > $FOLDER/node.key",
        "sed s/PRIVATE/PUBLIC/ $ROOT/kept > $FOLDER/node.key",
        "printf 'nonsense\\0nonsense' > $FOLDER/node.key",
        "sed 's/^MC4/MC5/' $ROOT/kept > $FOLDER/node.key",
        "sed 's/PRIVATE KEY/ENCRYPTED PRIVATE KEY/' $ROOT/kept > $FOLDER/node.key",
    };
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        run(damages[i]);
        assert_refused("is damaged");
    }
    run("cp -p $ROOT/kept $FOLDER/node.key");
    open_good(&identity, false);
    identity_deinit(&identity);
}

static void test_another_kind_of_key(void **state)
{
    (void)state;
    struct identity identity;
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    assert_int_equal(identity_of_key(key, &identity, NULL), ERROR_INVALID);
    assert_null(identity.key);
    uint8_t bytes[PUBLIC_KEY_BYTES] = {9};
    key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, bytes, sizeof bytes);
    assert_int_not_equal(identity_of_key(key, &identity, NULL), ERROR_NONE);
    assert_null(identity.key);
}

static void test_what_is_no_file(void **state)
{
    (void)state;
    run("mkdir -p -m 700 $FOLDER");
    run("mkfifo -m 600 $FOLDER/node.key");
    assert_refused("not a regular file");
    run("rm $FOLDER/node.key; : > $ROOT/elsewhere; ln -s $ROOT/elsewhere $FOLDER/node.key");
    assert_refused("it is a link");
    run("rm $FOLDER/node.key; mkdir -m 700 $FOLDER/node.key");
    assert_refused("not a regular file");
    run("rmdir $FOLDER/node.key; head -c 70000 /dev/zero > $FOLDER/node.key; chmod 600 "
        "$FOLDER/node.key");
    assert_refused("larger than the limit");
    run("rm -r $FOLDER; : > $FOLDER");
    assert_refused("folder for keys");
}

static void test_a_path_that_is_too_long(void **state)
{
    (void)state;
    static char path[PATH_MAX + 10];
    struct identity identity;
    struct error err;
    bool made;
    memset(path, 'x', sizeof path - 1);
    path[0] = '/';
    assert_int_equal(identity_open(path, &identity, &made, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "too long"));
}

/* What a crash left beside the file is not looked at, and is gone after the next write. */
static void test_a_torn_write(void **state)
{
    (void)state;
    struct identity identity;
    run("mkdir -p -m 700 $FOLDER; printf 'half a k' > $FOLDER/.node.key.new; chmod 666 "
        "$FOLDER/.node.key.new");
    open_good(&identity, true);
    identity_deinit(&identity);
    run("test \"$(ls -A $FOLDER)\" = node.key");
    assert_int_equal(mode_of(key_path), 0600);
}

/* In a child, since limits stay: the disk is full after `bytes`. */
static int try_store(const struct membership *membership, rlim_t bytes)
{
    pid_t child = fork();
    if (child == 0) {
        struct error err = {0};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, bytes});
        enum error_code code = membership_store(folder, membership, &err);
        _exit(code ? (strstr(err.text, "membership.pem") ? 7 : 8) : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_a_full_disk_keeps_the_old(void **state)
{
    (void)state;
    struct identity identity;
    struct membership first, second, loaded;
    open_good(&identity, true);
    assert_int_equal(membership_found(&identity, WORLD_NOW, &first, NULL), ERROR_NONE);
    assert_int_equal(membership_found(&identity, WORLD_NOW, &second, NULL), ERROR_NONE);
    assert_int_equal(membership_store(folder, &first, NULL), ERROR_NONE);
    for (rlim_t bytes = 0; bytes < 1500; bytes += 100)
        assert_int_equal(try_store(&second, bytes), 7);
    assert_int_equal(membership_load(folder, &identity, &loaded, NULL), ERROR_NONE);
    assert_memory_equal(loaded.authority.cluster_id, first.authority.cluster_id, CLUSTER_ID_BYTES);
    run("test \"$(ls -A $FOLDER | tr '\\n' ' ')\" = 'membership.pem node.key '");
    membership_deinit(&loaded);
    assert_int_equal(try_store(&second, 100000), 0);
    assert_int_equal(membership_load(folder, &identity, &loaded, NULL), ERROR_NONE);
    assert_memory_equal(loaded.authority.cluster_id, second.authority.cluster_id, CLUSTER_ID_BYTES);
    membership_deinit(&loaded);
    membership_deinit(&first);
    membership_deinit(&second);
    identity_deinit(&identity);
}

/* Eight processes that start at once agree on one key. */
static void test_starting_at_once(void **state)
{
    (void)state;
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    for (int i = 0; i < 8; i++) {
        if (fork() == 0) {
            struct identity identity;
            bool made;
            bool good = identity_open(folder, &identity, &made, NULL) == ERROR_NONE;
            _exit(!good || write(pipes[1], identity.node_id, NODE_ID_BYTES) != NODE_ID_BYTES);
        }
    }
    uint8_t first[NODE_ID_BYTES], id[NODE_ID_BYTES];
    assert_int_equal(read(pipes[0], first, sizeof first), sizeof first);
    for (int i = 1; i < 8; i++) {
        assert_int_equal(read(pipes[0], id, sizeof id), sizeof id);
        assert_memory_equal(id, first, sizeof id);
    }
    for (int i = 0; i < 8; i++)
        wait(NULL);
    close(pipes[0]);
    close(pipes[1]);
}

static void test_a_lock_that_is_held(void **state)
{
    (void)state;
    struct secret_folder held;
    assert_int_equal(secret_folder_open(folder, &held, NULL), ERROR_NONE);
    assert_refused("another process has locked it");
    secret_folder_close(&held);
}

/* ---- memberships ----------------------------------------------------------------------------- */

static void test_membership_round_trip(void **state)
{
    (void)state;
    struct identity identity;
    struct membership made, loaded;
    open_good(&identity, true);
    assert_int_equal(membership_load(folder, &identity, &loaded, NULL), ERROR_NONE);
    assert_null(loaded.certificate);
    assert_int_equal(membership_found(&identity, WORLD_NOW, &made, NULL), ERROR_NONE);
    for (int with_key = 1; with_key >= 0; with_key--) {
        if (!with_key) {
            EVP_PKEY_free(made.authority.key);
            made.authority.key = NULL;
        }
        assert_int_equal(membership_store(folder, &made, NULL), ERROR_NONE);
        assert_int_equal(mode_of(membership_path), 0600);
        struct error err = {0};
        if (membership_load(folder, &identity, &loaded, &err))
            fail_msg("%s", err.text);
        assert_int_equal(X509_cmp(loaded.certificate, made.certificate), 0);
        assert_int_equal(X509_cmp(loaded.authority.certificate, made.authority.certificate), 0);
        assert_memory_equal(loaded.authority.cluster_id, made.authority.cluster_id,
                            CLUSTER_ID_BYTES);
        assert_int_equal(loaded.authority.key != NULL, with_key);
        X509 *certificate;
        assert_int_equal(
            authority_sign(&loaded.authority, identity.public_key, WORLD_NOW, &certificate, NULL),
            with_key ? ERROR_NONE : ERROR_UNSUPPORTED);
        X509_free(certificate);
        membership_deinit(&loaded);
    }
    assert_int_equal(membership_renew(&made, &identity, WORLD_NOW, NULL), ERROR_UNSUPPORTED);
    membership_deinit(&made);
    identity_deinit(&identity);
}

/* While the authority gets a new key: that with and without its key, and this node's certificate by
 * it; any of them alone. */
static void test_membership_of_two_authorities(void **state)
{
    (void)state;
    struct identity identity;
    open_good(&identity, true);
    for (unsigned has = 0; has < 8; has++) {
        struct membership made, loaded;
        struct authority next;
        struct error err = {0};
        X509 *own;
        assert_int_equal(membership_found(&identity, WORLD_NOW, &made, NULL), ERROR_NONE);
        assert_int_equal(authority_make_next(&made.authority, &next, NULL), ERROR_NONE);
        assert_int_equal(authority_sign(&next, identity.public_key, WORLD_NOW, &own, NULL),
                         ERROR_NONE);
        assert_int_equal(membership_expect(&made, &next, NULL), ERROR_NONE);
        if (has & 1)
            assert_int_equal(membership_set_next_certificate(&made, &identity, own, NULL),
                             ERROR_NONE);
        if (!(has & 2))
            authority_drop_key(&made.next);
        if (!(has & 4))
            authority_drop_key(&made.authority);
        X509_free(own);
        assert_int_equal(membership_store(folder, &made, NULL), ERROR_NONE);
        if (membership_load(folder, &identity, &loaded, &err))
            fail_msg("%u: %s", has, err.text);
        assert_int_equal(X509_cmp(loaded.next.certificate, made.next.certificate), 0);
        assert_int_equal(loaded.next_certificate != NULL, has & 1);
        assert_int_equal(loaded.next.key != NULL, has >> 1 & 1);
        assert_int_equal(loaded.authority.key != NULL, has >> 2 & 1);
        membership_deinit(&loaded);
        membership_deinit(&made);
    }
    identity_deinit(&identity);
}

static void assert_membership_refused(const struct identity *identity, const char *part)
{
    struct membership loaded;
    struct error err = {0};
    assert_int_equal(membership_load(folder, identity, &loaded, &err), ERROR_INVALID);
    if (!strstr(err.text, part))
        fail_msg("\"%s\" does not say \"%s\"", err.text, part);
    assert_null(loaded.certificate);
    assert_null(loaded.authority.key);
}

static void test_a_damaged_membership(void **state)
{
    (void)state;
    struct identity identity;
    struct membership made;
    open_good(&identity, true);
    assert_int_equal(membership_found(&identity, WORLD_NOW, &made, NULL), ERROR_NONE);
    assert_int_equal(membership_store(folder, &made, NULL), ERROR_NONE);
    run("cp -p $FOLDER/membership.pem $ROOT/kept");
    static const char *const damages[] = {
        ": > $FOLDER/membership.pem",
        "head -c 400 $ROOT/kept > $FOLDER/membership.pem",
        /* one certificate */
        ("sed '/BEGIN PRIVATE/,$d' $ROOT/kept | sed '1,/END CERT/d' > "
         "$FOLDER/membership.pem"),
        "sed '/END PRIVATE/d' $ROOT/kept > $FOLDER/membership.pem",
        "cat $ROOT/kept $ROOT/kept > $FOLDER/membership.pem",
        "sed 's/^[A-Za-z0-9].*/AAAA/' $ROOT/kept > $FOLDER/membership.pem",
    };
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        run(damages[i]);
        assert_membership_refused(&identity, "it is damaged");
    }
    run("chmod 644 $FOLDER/membership.pem");
    assert_membership_refused(&identity, "chmod 600");
    membership_deinit(&made);
    identity_deinit(&identity);
}

static void test_what_does_not_belong_together(void **state)
{
    (void)state;
    struct identity mine, other;
    struct membership membership, foreign;
    struct error err;
    open_good(&mine, true);
    assert_int_equal(identity_make(&other, NULL), ERROR_NONE);
    assert_int_equal(membership_found(&mine, WORLD_NOW, &membership, NULL), ERROR_NONE);
    assert_int_equal(membership_found(&other, WORLD_NOW, &foreign, NULL), ERROR_NONE);
    assert_int_equal(membership_store(folder, &foreign, NULL), ERROR_NONE);
    assert_membership_refused(&mine, "to another node");
    struct membership mixed = membership;
    mixed.authority.key = foreign.authority.key;
    assert_int_equal(membership_check(&mixed, &mine, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "does not belong to its certificate"));
    mixed = membership;
    mixed.authority = foreign.authority;
    assert_int_equal(membership_check(&mixed, &mine, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "to another cluster"));
    mixed = membership;
    mixed.authority.certificate = membership.certificate;
    assert_int_equal(membership_check(&mixed, &mine, &err), ERROR_INVALID);
    /* another authority that says it is this cluster's */
    X509 *forged = world_forge(&mine, &(struct world_forgery){.authority = &foreign.authority});
    assert_int_equal(membership_set_certificate(&membership, &mine, forged, &err), ERROR_INVALID);
    X509_free(forged);
    struct authority liar = foreign.authority;
    memcpy(liar.cluster_id, membership.authority.cluster_id, CLUSTER_ID_BYTES);
    forged = world_forge(&mine, &(struct world_forgery){.authority = &liar});
    assert_int_equal(membership_set_certificate(&membership, &mine, forged, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "not signed by"));
    X509_free(forged);
    /* a signature that is off by one bit */
    uint8_t *der = NULL;
    int size = i2d_X509(membership.certificate, &der);
    der[size - 1] ^= 1;
    const uint8_t *at = der;
    forged = d2i_X509(NULL, &at, size);
    assert_non_null(forged);
    assert_int_equal(membership_set_certificate(&membership, &mine, forged, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "not signed by"));
    X509_free(forged);
    OPENSSL_free(der);
    membership_deinit(&membership);
    membership_deinit(&foreign);
    identity_deinit(&mine);
    identity_deinit(&other);
}

static void test_leaving(void **state)
{
    (void)state;
    struct identity before, after;
    struct membership membership;
    open_good(&before, true);
    assert_int_equal(membership_found(&before, WORLD_NOW, &membership, NULL), ERROR_NONE);
    assert_int_equal(membership_store(folder, &membership, NULL), ERROR_NONE);
    membership_deinit(&membership);
    assert_int_equal(identity_forget(folder, NULL), ERROR_NONE);
    assert_int_equal(identity_forget(folder, NULL), ERROR_NONE);
    run("test -z \"$(ls -A $FOLDER)\"");
    open_good(&after, true);
    assert_memory_not_equal(before.node_id, after.node_id, NODE_ID_BYTES);
    assert_int_equal(membership_load(folder, &after, &membership, NULL), ERROR_NONE);
    assert_null(membership.certificate);
    identity_deinit(&before);
    identity_deinit(&after);
}

/* ---- certificates ---------------------------------------------------------------------------- */

static void test_what_a_certificate_says(void **state)
{
    (void)state;
    struct identity identity;
    struct membership membership;
    uint8_t node_id[NODE_ID_BYTES], cluster_id[CLUSTER_ID_BYTES];
    uint64_t from, until;
    assert_int_equal(identity_make(&identity, NULL), ERROR_NONE);
    assert_int_equal(membership_found(&identity, WORLD_NOW, &membership, NULL), ERROR_NONE);
    assert_true(certificate_names(membership.certificate, node_id, cluster_id));
    assert_memory_equal(node_id, identity.node_id, NODE_ID_BYTES);
    assert_memory_equal(cluster_id, membership.authority.cluster_id, CLUSTER_ID_BYTES);
    assert_true(certificate_period(membership.certificate, &from, &until));
    assert_int_equal(from, WORLD_NOW - AUTHORITY_SKEW_S);
    assert_int_equal(until, WORLD_NOW + AUTHORITY_NODE_DAYS * 86400ull);
    assert_false(certificate_names(membership.authority.certificate, node_id, cluster_id));
    assert_false(certificate_cluster(membership.certificate, cluster_id));
    assert_true(certificate_cluster(membership.authority.certificate, cluster_id));
    assert_true(certificate_period(membership.authority.certificate, &from, &until));
    assert_true(until > WORLD_NOW + 1000ull * 365 * 86400);
    assert_int_equal(X509_check_ca(membership.authority.certificate), 1);
    assert_int_equal(X509_check_ca(membership.certificate), 0);
    /* a clock that starts in 1970 makes no certificate of 1970 */
    assert_int_equal(membership_renew(&membership, &identity, 0, NULL), ERROR_NONE);
    assert_true(certificate_period(membership.certificate, &from, &until));
    assert_int_equal(from, AUTHORITY_EPOCH_UNIX_S - AUTHORITY_SKEW_S);
    membership_deinit(&membership);
    identity_deinit(&identity);
}

static void test_ids_as_text(void **state)
{
    (void)state;
    uint8_t id[4] = {0x01, 0xab, 0xff, 0x00}, back[4];
    char text[9];
    id_text(id, 4, text);
    assert_string_equal(text, "01abff00");
    assert_true(id_parse(text, back, 4));
    assert_memory_equal(id, back, 4);
    static const char *const bad[] = {"",         "01abff0",  "01abff000",
                                      "01ABff00", "01abfg00", "01 bff00"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(id_parse(bad[i], back, 4));
}

/* RFC 8032's first test key: its id is the SHA-256 of its SubjectPublicKeyInfo, as
 * `openssl pkey -pubin -outform DER | sha256sum` finds it. */
static void test_a_known_id(void **state)
{
    (void)state;
    uint8_t key[PUBLIC_KEY_BYTES], id[NODE_ID_BYTES];
    char text[NODE_ID_TEXT];
    assert_true(id_parse("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", key,
                         sizeof key));
    node_id_of(key, id);
    id_text(id, sizeof id, text);
    assert_string_equal(text, "06e3fd8fda29bb60ab59557de61edb0aecdb231134be30e75b455f8e1b792fa9");
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_key_stays),
        TEST(test_a_umask_that_denies_all),
        TEST(test_two_nodes_differ),
        TEST(test_what_others_can_read),
        TEST(test_another_owner),
        TEST(test_damage),
        TEST(test_another_kind_of_key),
        TEST(test_what_is_no_file),
        TEST(test_a_path_that_is_too_long),
        TEST(test_a_torn_write),
        TEST(test_a_full_disk_keeps_the_old),
        TEST(test_starting_at_once),
        TEST(test_a_lock_that_is_held),
        TEST(test_membership_round_trip),
        TEST(test_membership_of_two_authorities),
        TEST(test_a_damaged_membership),
        TEST(test_what_does_not_belong_together),
        TEST(test_leaving),
        TEST(test_what_a_certificate_says),
        TEST(test_ids_as_text),
        TEST(test_a_known_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
