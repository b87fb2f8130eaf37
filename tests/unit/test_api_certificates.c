/* trust: the API's authority and certificates: who signs, for which names, for how long, and how
 * they are renewed and reread. Clients are OpenSSL's, with the checks that they make. */
#include "base/limits.h"
#include "trust/api_files.h"
#include "trust/handshake_rate.h"
#include "trust/identity_files.h"
#include "trust/pair_keeper.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include <cmocka.h>

enum { DAY = 86400 };
static const uint64_t now_s = AUTHORITY_EPOCH_UNIX_S + 20 * DAY;

static char root[64];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/medley-certs-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static struct served_names some_names(void)
{
    struct served_names names = {0};
    served_names_add_machine(&names, "Tower");
    assert_true(served_names_add(&names, "192.168.1.7"));
    assert_true(served_names_add(&names, "2001:DB8::7"));
    return names;
}

/* What a client does: the chain, the name or address, strictly, at a time. X509_V_OK or why not. */
static int client_verifies(const X509 *trusted, X509 *leaf, const char *host, uint64_t at_s)
{
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *context = X509_STORE_CTX_new();
    assert_int_equal(X509_STORE_add_cert(store, (X509 *)(uintptr_t)trusted), 1);
    assert_int_equal(X509_STORE_CTX_init(context, store, leaf, NULL), 1);
    X509_VERIFY_PARAM *param = X509_STORE_CTX_get0_param(context);
    X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_X509_STRICT);
    X509_VERIFY_PARAM_set_time(param, (time_t)at_s);
    X509_VERIFY_PARAM_set_purpose(param, X509_PURPOSE_SSL_SERVER);
    if (X509_VERIFY_PARAM_set1_ip_asc(param, host) != 1)
        assert_int_equal(X509_VERIFY_PARAM_set1_host(param, host, 0), 1);
    int verdict = X509_verify_cert(context) == 1 ? X509_V_OK : X509_STORE_CTX_get_error(context);
    X509_STORE_CTX_free(context);
    X509_STORE_free(store);
    return verdict;
}

/* ---- names --------------------------------------------------------------------------------- */

static void names_are_checked_and_kept_once(void **state)
{
    struct served_names names = {0};
    (void)state;
    static const char *const bad[] = {
        "",         ".",     "a..b",      "-a",          "a-",      "a b", "a,DNS:evil.example",
        "a\nb",     "1.2.3", "300.1.1.1", "caf\xc3\xa9", "*.local", "a_b", "fe80::1%eth0",
        "x;y.local"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(served_names_add(&names, bad[i]));
    assert_int_equal(names.n_names + names.n_addresses, 0);
    assert_true(served_names_add(&names, "Tower.Local."));
    assert_true(served_names_add(&names, "tower.local"));
    assert_true(served_names_add(&names, "::0001"));
    assert_true(served_names_add(&names, "::1"));
    assert_int_equal(names.n_names, 1);
    assert_string_equal(names.names[0], "tower.local");
    assert_int_equal(names.n_addresses, 1);
    char long_name[300];
    memset(long_name, 'a', sizeof long_name);
    long_name[64] = 0;
    assert_false(served_names_add(&names, long_name)); /* a label of 64 */
    names = (struct served_names){0};
    for (int i = 0; i < 2 * SERVED_NAMES_MAX; i++) {
        snprintf(long_name, sizeof long_name, "n%d", i);
        assert_int_equal(served_names_add(&names, long_name), i < SERVED_NAMES_MAX);
        snprintf(long_name, sizeof long_name, "10.0.0.%d", i);
        assert_int_equal(served_names_add(&names, long_name), i < SERVED_ADDRESSES_MAX);
    }
}

static void a_wildcard_gathers_all_addresses(void **state)
{
    struct served_names all = {0}, one = {0};
    (void)state;
    served_names_gather(&all, "0.0.0.0", "tower");
    served_names_gather(&one, "192.0.2.9", "tower");
    bool loopback = false, v6 = false;
    for (uint32_t i = 0; i < all.n_addresses; i++) {
        loopback |= strcmp(all.addresses[i], "127.0.0.1") == 0;
        v6 |= strchr(all.addresses[i], ':') != NULL;
    }
    assert_true(loopback && !v6);
    assert_string_equal(all.names[0], "localhost");
    assert_int_equal(one.n_addresses, 1);
    assert_string_equal(one.addresses[0], "192.0.2.9");
    for (uint32_t i = 0; i < one.n_names; i++)
        assert_string_not_equal(one.names[i], "localhost");
}

/* ---- the authority ------------------------------------------------------------------------- */

static void every_holder_derives_the_same_bits(void **state)
{
    struct authority cluster, other;
    struct api_authority first, second, third;
    struct error err;
    unsigned char *one = NULL, *two = NULL;
    (void)state;
    assert_int_equal(authority_make(&cluster, &err), ERROR_NONE);
    assert_int_equal(authority_make(&other, &err), ERROR_NONE);
    assert_int_equal(api_authority_of_cluster(&cluster, &first, &err), ERROR_NONE);
    assert_int_equal(api_authority_of_cluster(&cluster, &second, &err), ERROR_NONE);
    assert_int_equal(api_authority_of_cluster(&other, &third, &err), ERROR_NONE);
    const int size = i2d_X509(first.certificate, &one);
    assert_int_equal(i2d_X509(second.certificate, &two), size);
    assert_memory_equal(one, two, (size_t)size);
    assert_true(api_authority_version(first.certificate) ==
                api_authority_version(second.certificate));
    assert_int_not_equal(EVP_PKEY_eq(first.key, third.key), 1);
    assert_true(api_authority_version(first.certificate) !=
                api_authority_version(third.certificate));
    EVP_PKEY_free(cluster.key); /* a member without it */
    cluster.key = NULL;
    struct api_authority none;
    assert_int_equal(api_authority_of_cluster(&cluster, &none, &err), ERROR_UNSUPPORTED);
    OPENSSL_free(one);
    OPENSSL_free(two);
    api_authority_deinit(&first);
    api_authority_deinit(&second);
    api_authority_deinit(&third);
    authority_deinit(&cluster);
    authority_deinit(&other);
}

/* The derivation is a promise to clients, which trust what an older version derived. */
static void the_derivation_stays_as_it_was(void **state)
{
    static const uint8_t seed[32] = {1, 2, 3};
    struct authority cluster = {.cluster_id = {7}};
    struct api_authority authority;
    struct error err;
    uint8_t hash[32];
    char text[65];
    unsigned size = 0;
    (void)state;
    cluster.key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, sizeof seed);
    assert_int_equal(api_authority_of_cluster(&cluster, &authority, &err), ERROR_NONE);
    assert_int_equal(X509_digest(authority.certificate, EVP_sha256(), hash, &size), 1);
    id_text(hash, sizeof hash, text);
    assert_string_equal(text, "5084a772d551bdcc27bb19636a6e0015dd72093b09245b90d133bc1e7c159e90");
    api_authority_deinit(&authority);
    authority_deinit(&cluster);
}

static void clients_take_what_it_signs(void **state)
{
    struct api_authority authority;
    struct tls_pair pair;
    struct error err;
    const struct served_names names = some_names();
    (void)state;
    assert_int_equal(api_authority_make(&authority, &err), ERROR_NONE);
    assert_int_equal(api_authority_issue(&authority, &names, now_s, &pair, &err), ERROR_NONE);
    X509 *leaf = pair.certificate;
    static const char *const good[] = {"tower.local",     "TOWER.local", "tower.lan",
                                       "tower.home.arpa", "192.168.1.7", "2001:db8::7"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(client_verifies(authority.certificate, leaf, good[i], now_s), X509_V_OK);
    assert_int_equal(client_verifies(authority.certificate, leaf, "other.local", now_s),
                     X509_V_ERR_HOSTNAME_MISMATCH);
    assert_int_equal(client_verifies(authority.certificate, leaf, "192.168.1.8", now_s),
                     X509_V_ERR_IP_ADDRESS_MISMATCH);
    assert_int_equal(
        client_verifies(authority.certificate, leaf, "tower.lan", now_s - AUTHORITY_SKEW_S + 60),
        X509_V_OK);
    assert_int_equal(
        client_verifies(authority.certificate, leaf, "tower.lan", now_s + API_LEAF_DAYS * DAY + 60),
        X509_V_ERR_CERT_HAS_EXPIRED);
    struct api_authority stranger;
    assert_int_equal(api_authority_make(&stranger, &err), ERROR_NONE);
    assert_int_not_equal(client_verifies(stranger.certificate, leaf, "tower.lan", now_s),
                         X509_V_OK);
    api_authority_deinit(&stranger);
    tls_pair_deinit(&pair);
    api_authority_deinit(&authority);
}

/* Whoever steals its key cannot pass as a site of the web to those who trust it. */
static void the_constraint_forbids_the_web(void **state)
{
    struct api_authority authority;
    struct tls_pair pair;
    struct error err;
    struct served_names names = {0};
    (void)state;
    assert_int_equal(api_authority_make(&authority, &err), ERROR_NONE);
    assert_true(served_names_add(&names, "bank.example.com"));
    assert_int_equal(api_authority_issue(&authority, &names, now_s, &pair, &err), ERROR_INVALID);
    /* the signing is ours; the constraint has to hold against one that is not */
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    X509 *leaf = X509_new();
    X509_set_version(leaf, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(leaf), 5);
    X509_gmtime_adj(X509_getm_notBefore(leaf), 0);
    ASN1_TIME_set(X509_getm_notBefore(leaf), (time_t)now_s - DAY);
    ASN1_TIME_set(X509_getm_notAfter(leaf), (time_t)now_s + DAY);
    X509_set_issuer_name(leaf, X509_get_subject_name(authority.certificate));
    X509_NAME_add_entry_by_txt(X509_get_subject_name(leaf), "O", MBSTRING_ASC,
                               (const unsigned char *)"x", -1, -1, 0);
    X509_set_pubkey(leaf, key);
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, authority.certificate, leaf, NULL, NULL, 0);
    static const struct {
        int nid;
        const char *value;
    } extensions[] = {{NID_subject_key_identifier, "hash"},
                      {NID_authority_key_identifier, "keyid:always"},
                      {NID_key_usage, "critical,digitalSignature"},
                      {NID_subject_alt_name, "DNS:bank.example.com"}};
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++) {
        X509_EXTENSION *extension =
            X509V3_EXT_conf_nid(NULL, &context, extensions[i].nid, extensions[i].value);
        assert_int_equal(X509_add_ext(leaf, extension, -1), 1);
        X509_EXTENSION_free(extension);
    }
    assert_true(X509_sign(leaf, authority.key, EVP_sha256()) > 0);
    assert_int_equal(client_verifies(authority.certificate, leaf, "bank.example.com", now_s),
                     X509_V_ERR_PERMITTED_VIOLATION);
    X509_free(leaf);
    EVP_PKEY_free(key);
    api_authority_deinit(&authority);
}

static void a_stupid_clock_still_gets_a_certificate(void **state)
{
    struct api_authority authority;
    struct tls_pair pair;
    struct error err;
    const struct served_names names = some_names();
    (void)state;
    assert_int_equal(api_authority_make(&authority, &err), ERROR_NONE);
    assert_int_equal(api_authority_issue(&authority, &names, 0, &pair, &err), ERROR_NONE);
    assert_int_equal(client_verifies(authority.certificate, pair.certificate, "tower.lan",
                                     AUTHORITY_EPOCH_UNIX_S + DAY),
                     X509_V_OK);
    tls_pair_deinit(&pair);
    api_authority_deinit(&authority);
}

/* ---- files --------------------------------------------------------------------------------- */

static void the_own_authority_lasts(void **state)
{
    struct api_authority first, second;
    struct buffer text = {0};
    struct error err;
    char path[128];
    struct stat file;
    (void)state;
    assert_int_equal(api_files_export(root, &text, &err), ERROR_NOT_FOUND);
    assert_int_equal(api_files_own_authority(root, &first, &err), ERROR_NONE);
    assert_int_equal(api_files_own_authority(root, &second, &err), ERROR_NONE);
    assert_int_equal(EVP_PKEY_eq(first.key, second.key), 1);
    assert_int_equal(X509_cmp(first.certificate, second.certificate), 0);
    snprintf(path, sizeof path, "%s/api/authority.pem", root);
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(file.st_mode & 0777, 0600);
    assert_int_equal(api_files_export(root, &text, &err), ERROR_NONE);
    assert_non_null(strstr(text.data, "BEGIN CERTIFICATE"));
    assert_null(strstr(text.data, "PRIVATE"));
    buffer_deinit(&text);
    api_authority_deinit(&second);
    assert_int_equal(truncate(path, 700), 0); /* never replaced: clients trust what it held */
    assert_int_equal(api_files_own_authority(root, &second, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(file.st_size, 700);
    api_authority_deinit(&first);
}

static void a_members_export_is_its_clusters(void **state)
{
    char folder[128];
    bool made;
    struct identity identity;
    struct membership membership;
    struct api_authority authority;
    struct buffer text = {0};
    struct error err;
    (void)state;
    snprintf(folder, sizeof folder, "%s/identity", root);
    assert_int_equal(identity_open(folder, &identity, &made, &err), ERROR_NONE);
    assert_int_equal(membership_found(&identity, now_s, &membership, &err), ERROR_NONE);
    assert_int_equal(membership_store(folder, &membership, &err), ERROR_NONE);
    assert_int_equal(api_files_export(root, &text, &err), ERROR_NONE);
    assert_int_equal(api_authority_of_cluster(&membership.authority, &authority, &err), ERROR_NONE);
    BIO *bio = BIO_new_mem_buf(text.data, (int)text.size);
    X509 *read = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    assert_int_equal(X509_cmp(read, authority.certificate), 0);
    X509_free(read);
    BIO_free(bio);
    buffer_deinit(&text);
    api_authority_deinit(&authority);
    membership_deinit(&membership);
    identity_deinit(&identity);
}

/* ---- the keeper ---------------------------------------------------------------------------- */

static struct fake_source {
    struct api_authority authority;
    uint64_t version;
    uint32_t n_issued;
} fake;

static uint64_t fake_version(void *self)
{
    return ((struct fake_source *)self)->version;
}

static enum error_code fake_issue(void *self, const struct served_names *names, uint64_t now,
                                  struct tls_pair *out, struct error *err)
{
    struct fake_source *source = self;
    source->n_issued++;
    return api_authority_issue(&source->authority, names, now, out, err);
}

static void a_signed_pair_is_renewed_in_time(void **state)
{
    struct pair_keeper keeper;
    struct error err;
    (void)state;
    fake = (struct fake_source){0};
    assert_int_equal(api_authority_make(&fake.authority, &err), ERROR_NONE);
    const struct pair_keeper_options options = {
        .host = "127.0.0.1",
        .state_folder = "",
        .node_name = "tower",
        .source = {.version = fake_version, .issue = fake_issue, .self = &fake}};
    assert_int_equal(pair_keeper_init(&keeper, &options, now_s, &err), ERROR_NONE);
    /* in no cluster yet: its own */
    assert_int_equal(fake.n_issued, 0);
    assert_int_equal(
        client_verifies(keeper.own.certificate, keeper.pair.certificate, "localhost", now_s),
        X509_V_OK);
    assert_false(pair_keeper_step(&keeper, now_s + 2));
    fake.version = 5; /* it joined */
    assert_true(pair_keeper_step(&keeper, now_s + 4));
    assert_int_equal(
        client_verifies(fake.authority.certificate, keeper.pair.certificate, "tower.local", now_s),
        X509_V_OK);
    const uint64_t due = now_s + 4 + (API_LEAF_DAYS - API_LEAF_RENEW_DAYS) * (uint64_t)DAY;
    assert_false(pair_keeper_step(&keeper, due));
    assert_true(pair_keeper_step(&keeper, due + 1));
    assert_false(pair_keeper_step(&keeper, due + 3));
    fake.version = 6; /* another authority */
    assert_true(pair_keeper_step(&keeper, due + 5));
    assert_int_equal(fake.n_issued, 3);
    keeper.options.node_name = "spire"; /* other names */
    assert_true(pair_keeper_step(&keeper, due + 7));
    assert_int_equal(
        client_verifies(fake.authority.certificate, keeper.pair.certificate, "spire.lan", due),
        X509_V_OK);
    assert_int_not_equal(
        client_verifies(fake.authority.certificate, keeper.pair.certificate, "tower.lan", due),
        X509_V_OK);
    pair_keeper_deinit(&keeper);
    api_authority_deinit(&fake.authority);
}

static void write_pem(const char *name, const X509 *certificate, EVP_PKEY *key,
                      const char *password)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    if (certificate)
        assert_int_equal(PEM_write_X509(file, (X509 *)(uintptr_t)certificate), 1);
    if (key)
        assert_int_equal(PEM_write_PKCS8PrivateKey(file, key, password ? EVP_aes_128_cbc() : NULL,
                                                   password, password ? (int)strlen(password) : 0,
                                                   NULL, NULL),
                         1);
    fclose(file);
}

static void own_files_are_reread_and_a_bad_pair_keeps_the_old(void **state)
{
    struct pair_keeper keeper;
    struct api_authority authority;
    struct tls_pair first, second;
    struct error err;
    char certificate[128], key[128];
    const struct served_names names = some_names();
    (void)state;
    snprintf(certificate, sizeof certificate, "%s/chain.pem", root);
    snprintf(key, sizeof key, "%s/key.pem", root);
    assert_int_equal(api_authority_make(&authority, &err), ERROR_NONE);
    assert_int_equal(api_authority_issue(&authority, &names, now_s, &first, &err), ERROR_NONE);
    assert_int_equal(api_authority_issue(&authority, &names, now_s, &second, &err), ERROR_NONE);
    const struct pair_keeper_options options = {
        .host = "127.0.0.1", .certificate_path = certificate, .key_path = key};
    assert_int_equal(pair_keeper_init(&keeper, &options, now_s, &err), ERROR_NOT_FOUND);
    assert_non_null(strstr(err.text, "chain.pem"));
    write_pem("chain.pem", first.certificate, NULL, NULL);
    write_pem("key.pem", NULL, second.key, NULL);
    assert_int_equal(pair_keeper_init(&keeper, &options, now_s, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "does not belong"));
    write_pem("key.pem", NULL, first.key, "secret");
    assert_int_equal(pair_keeper_init(&keeper, &options, now_s, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "password"));
    write_pem("key.pem", NULL, first.key, NULL);
    assert_int_equal(pair_keeper_init(&keeper, &options, now_s, &err), ERROR_NONE);
    assert_false(pair_keeper_step(&keeper, now_s));
    /* the certificate is replaced, and its key not yet */
    write_pem("chain.pem", second.certificate, NULL, NULL);
    assert_false(pair_keeper_step(&keeper, now_s));
    assert_int_equal(X509_cmp(keeper.pair.certificate, first.certificate), 0);
    write_pem("key.pem", NULL, second.key, NULL);
    assert_true(pair_keeper_step(&keeper, now_s));
    assert_int_equal(X509_cmp(keeper.pair.certificate, second.certificate), 0);
    assert_int_equal(unlink(key), 0);
    assert_false(pair_keeper_step(&keeper, now_s));
    assert_int_equal(X509_cmp(keeper.pair.certificate, second.certificate), 0);
    write_pem("key.pem", NULL, second.key, NULL);
    assert_true(pair_keeper_step(&keeper, now_s));
    pair_keeper_deinit(&keeper);
    tls_pair_deinit(&first);
    tls_pair_deinit(&second);
    api_authority_deinit(&authority);
}

static void what_a_file_may_hold_is_bounded(void **state)
{
    struct api_authority authority;
    struct tls_pair pair, read;
    struct buffer text = {0};
    struct error err;
    const struct served_names names = some_names();
    (void)state;
    assert_int_equal(api_authority_make(&authority, &err), ERROR_NONE);
    assert_int_equal(api_authority_issue(&authority, &names, now_s, &pair, &err), ERROR_NONE);
    BIO *one = BIO_new(BIO_s_mem()), *key = BIO_new(BIO_s_mem());
    char *bytes, *key_bytes;
    assert_int_equal(PEM_write_bio_X509(one, pair.certificate), 1);
    assert_int_equal(PEM_write_bio_PrivateKey(key, pair.key, NULL, NULL, 0, NULL, NULL), 1);
    const size_t size = (size_t)BIO_get_mem_data(one, &bytes);
    const size_t key_size = (size_t)BIO_get_mem_data(key, &key_bytes);
    for (int n = 1; n <= LIMIT_TLS_CHAIN + 2; n++) {
        buffer_append(&text, bytes, size);
        const enum error_code code =
            tls_pair_parse(text.data, text.size, key_bytes, key_size, &read, &err);
        assert_int_equal(code, n <= LIMIT_TLS_CHAIN + 1 ? ERROR_NONE : ERROR_INVALID);
        tls_pair_deinit(&read);
    }
    assert_int_equal(tls_pair_parse(bytes, size / 2, key_bytes, key_size, &read, &err),
                     ERROR_INVALID);
    assert_int_equal(tls_pair_parse("", 0, key_bytes, key_size, &read, &err), ERROR_INVALID);
    assert_int_equal(tls_pair_parse(bytes, size, bytes, size, &read, &err), ERROR_INVALID);
    assert_int_equal(tls_pair_read("/dev/zero", "/dev/zero", &read, &err), ERROR_INVALID);
    BIO_free(one);
    BIO_free(key);
    buffer_deinit(&text);
    tls_pair_deinit(&pair);
    api_authority_deinit(&authority);
}

/* ---- handshakes ---------------------------------------------------------------------------- */

static uint32_t take_all(struct handshake_rate *rate, uint64_t host, uint64_t now_ns)
{
    uint32_t n = 0;
    while (n < 10000 && handshake_rate_take(rate, host, now_ns))
        n++;
    return n;
}

static void handshakes_have_a_rate(void **state)
{
    static const uint64_t s = UINT64_C(1000000000), begin = 77 * UINT64_C(1000000000);
    struct handshake_rate rate = {0};
    uint32_t flooder = 0, other = 0;
    (void)state;
    assert_int_equal(take_all(&rate, 1, begin), HANDSHAKES_AT_ONCE);
    assert_false(handshake_rate_take(&rate, 2, begin)); /* all that the loop may be held by */
    for (int ms = 1; ms <= 1000; ms++) {
        flooder += take_all(&rate, 1, begin + (uint64_t)ms * (s / 1000));
        if (ms % 10 == 0) /* another client, a hundred times a second */
            other += handshake_rate_take(&rate, 2, begin + (uint64_t)ms * (s / 1000));
    }
    assert_in_range(flooder, HANDSHAKES_OF_HOST_PER_S - 1, HANDSHAKES_OF_HOST_PER_S + 1);
    assert_int_equal(other, 100);
    assert_int_equal(take_all(&rate, 1, begin + 60 * s), HANDSHAKES_AT_ONCE);
    rate = (struct handshake_rate){0};
    uint32_t n = 0; /* from everywhere, for a second */
    for (uint64_t i = 0; i < 100000; i++)
        n += handshake_rate_take(&rate, i, begin + i * (s / 100000));
    assert_in_range(n, HANDSHAKES_PER_S, HANDSHAKES_PER_S + HANDSHAKES_AT_ONCE + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_checked_and_kept_once),
        cmocka_unit_test(a_wildcard_gathers_all_addresses),
        cmocka_unit_test(every_holder_derives_the_same_bits),
        cmocka_unit_test(the_derivation_stays_as_it_was),
        cmocka_unit_test(clients_take_what_it_signs),
        cmocka_unit_test(the_constraint_forbids_the_web),
        cmocka_unit_test(a_stupid_clock_still_gets_a_certificate),
        cmocka_unit_test_setup_teardown(the_own_authority_lasts, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_members_export_is_its_clusters, make_root, remove_root),
        cmocka_unit_test(a_signed_pair_is_renewed_in_time),
        cmocka_unit_test_setup_teardown(own_files_are_reread_and_a_bad_pair_keeps_the_old,
                                        make_root, remove_root),
        cmocka_unit_test(what_a_file_may_hold_is_bounded),
        cmocka_unit_test(handshakes_have_a_rate),
    };
    return cmocka_run_group_tests_name("api_certificates", tests, NULL, NULL);
}
