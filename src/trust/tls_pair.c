#include "trust/tls_pair.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "trust/handshake_rate.h"
#include "trust/openssl_error.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

void tls_pair_deinit(struct tls_pair *pair)
{
    if (!pair)
        return;
    EVP_PKEY_free(pair->key);
    X509_free(pair->certificate);
    sk_X509_pop_free(pair->chain, X509_free);
    *pair = (struct tls_pair){0};
}

/* ---- files ------------------------------------------------------------------------------ */

/* A password is never asked for: there may be nobody at a terminal. */
static int tls_password_none(char *buffer, int size, int is_write, void *self)
{
    (void)buffer, (void)size, (void)is_write;
    *(bool *)self = true;
    return -1;
}

static enum error_code tls_parse_certificates(BIO *text, struct tls_pair *out, struct error *err)
{
    out->certificate = PEM_read_bio_X509(text, NULL, NULL, NULL);
    if (!out->certificate)
        return error_set(err, ERROR_INVALID, "it holds no certificate (PEM)");
    X509 *next;
    while ((next = PEM_read_bio_X509(text, NULL, NULL, NULL))) {
        if (!out->chain)
            out->chain = sk_X509_new_null();
        if (sk_X509_num(out->chain) >= LIMIT_TLS_CHAIN)
            break;
        if (!out->chain || sk_X509_push(out->chain, next) <= 0) {
            X509_free(next);
            return error_set(err, ERROR_NO_MEMORY, "not enough memory for certificates");
        }
    }
    X509_free(next);
    if (next)
        return error_set(err, ERROR_INVALID, "it holds more than the %d certificates allowed",
                         LIMIT_TLS_CHAIN + 1);
    return ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE
               ? ERROR_NONE
               : error_set(err, ERROR_INVALID, "one of its certificates is damaged");
}

static enum error_code tls_parse_key(BIO *text, struct tls_pair *out, struct error *err)
{
    bool asked = false;
    out->key = PEM_read_bio_PrivateKey(text, NULL, tls_password_none, &asked);
    if (asked)
        return error_set(err, ERROR_INVALID,
                         "its key has a password; write it without: openssl pkey -in … -out …");
    return out->key ? ERROR_NONE : error_set(err, ERROR_INVALID, "it holds no private key (PEM)");
}

static enum error_code tls_pair_check(const struct tls_pair *pair, struct error *err)
{
    const bool fits = X509_check_private_key(pair->certificate, pair->key) == 1;
    return fits ? ERROR_NONE
                : error_set(err, ERROR_INVALID, "the key does not belong to the certificate");
}

enum error_code tls_pair_parse(const void *certificates, size_t certificates_size, const void *key,
                               size_t key_size, struct tls_pair *out, struct error *err)
{
    *out = (struct tls_pair){0};
    BIO *first = BIO_new_mem_buf(certificates, (int)certificates_size);
    BIO *second = BIO_new_mem_buf(key, (int)key_size);
    enum error_code code = first && second
                               ? ERROR_NONE
                               : error_set(err, ERROR_NO_MEMORY, "not enough memory for a key");
    ERR_clear_error();
    if (!code && (code = tls_parse_certificates(first, out, err)))
        error_wrap(err, "the certificate's file");
    if (!code && (code = tls_parse_key(second, out, err)))
        error_wrap(err, "the key's file");
    if (!code)
        code = tls_pair_check(out, err);
    BIO_free(first);
    BIO_free(second);
    ERR_clear_error();
    if (code)
        tls_pair_deinit(out);
    return code;
}

/* Of whoever owns it, and links are followed: those who renew certificates keep both. */
static enum error_code tls_file_read(const char *path, uint8_t **bytes, size_t *size,
                                     struct error *err)
{
    struct stat file;
    enum error_code code = ERROR_NONE;
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    *bytes = NULL;
    if (fd < 0 || fstat(fd, &file) != 0)
        code = error_set(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "%s: %s", path,
                         strerror(errno));
    else if (!S_ISREG(file.st_mode) || file.st_size > LIMIT_TLS_FILE_BYTES)
        code = error_set(err, ERROR_INVALID, "%s: not a file of at most %d bytes", path,
                         LIMIT_TLS_FILE_BYTES);
    if (!code && !(*bytes = mem_new((size_t)LIMIT_TLS_FILE_BYTES)))
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for %s", path);
    if (!code && (n = read(fd, *bytes, LIMIT_TLS_FILE_BYTES)) < 0)
        code = error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    *size = n > 0 ? (size_t)n : 0;
    if (fd >= 0)
        close(fd);
    return code;
}

static void tls_file_wipe(uint8_t *bytes, size_t size)
{
    if (bytes)
        OPENSSL_cleanse(bytes, size);
    mem_free(bytes);
}

enum error_code tls_pair_read(const char *certificate_path, const char *key_path,
                              struct tls_pair *out, struct error *err)
{
    uint8_t *certificates = NULL, *key = NULL;
    size_t certificates_size = 0, key_size = 0;
    *out = (struct tls_pair){0};
    enum error_code code = tls_file_read(certificate_path, &certificates, &certificates_size, err);
    if (!code)
        code = tls_file_read(key_path, &key, &key_size, err);
    if (!code && (code = tls_pair_parse(certificates, certificates_size, key, key_size, out, err)))
        error_wrap(err, "%s and %s", certificate_path, key_path);
    tls_file_wipe(certificates, certificates_size);
    tls_file_wipe(key, key_size);
    return code;
}

/* ---- a server's context ----------------------------------------------------------------- */

/* Not SSL_CTX_use_certificate(): a context has a place for each kind of key, and would go on
 * showing an RSA certificate that an ECDSA one has replaced. */
static int tls_server_on_hello(SSL *ssl, void *self)
{
    const struct tls_pair *pair = self;
    SSL_certs_clear(ssl);
    return pair->certificate &&
           SSL_use_cert_and_key(ssl, pair->certificate, pair->key, pair->chain, 1) == 1;
}

/* A number for the address; 0 where there is none. */
static uint64_t tls_server_host(const SSL *ssl)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    uint64_t host = 0;
    if (getpeername(SSL_get_fd(ssl), (struct sockaddr *)&address, &size) != 0)
        return 0;
    if (address.ss_family == AF_INET)
        host = ((const struct sockaddr_in *)&address)->sin_addr.s_addr;
    else if (address.ss_family == AF_INET6)
        memcpy(&host, &((const struct sockaddr_in6 *)&address)->sin6_addr, sizeof host);
    return host;
}

/* The first callback of a handshake: nothing was computed yet. */
static int tls_server_on_client_hello(SSL *ssl, int *alert, void *self)
{
    if (handshake_rate_take(self, tls_server_host(ssl), clock_now_ns()))
        return SSL_CLIENT_HELLO_SUCCESS;
    *alert = SSL_AD_USER_CANCELLED;
    return SSL_CLIENT_HELLO_ERROR;
}

enum error_code tls_server_set_up(SSL_CTX *context, const struct tls_pair *pair,
                                  struct handshake_rate *rate, struct error *err)
{
    static const char suites_1_2[] = "ECDHE+AESGCM:ECDHE+CHACHA20";
    static const char suites_1_3[] =
        "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
    static const char signatures[] =
        "ECDSA+SHA256:ECDSA+SHA384:ECDSA+SHA512:RSA-PSS+SHA256:RSA-PSS+SHA384:RSA-PSS+SHA512:"
        "RSA+SHA256:RSA+SHA384:RSA+SHA512:ed25519"; /* OpenSSL's own list has SHA-224, too */
    static const char groups[] = "?X25519MLKEM768:X25519:P-256:P-384";
    if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1 ||
        SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_cipher_list(context, suites_1_2) != 1 ||
        SSL_CTX_set_ciphersuites(context, suites_1_3) != 1 ||
        SSL_CTX_set1_sigalgs_list(context, signatures) != 1 ||
        SSL_CTX_set1_groups_list(context, groups) != 1)
        return openssl_error(err, "setting up TLS");
    /* A ticket's key would open recordings of all sessions for as long as it is kept. */
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(context, 0);
    SSL_CTX_set_max_early_data(context, 0);
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION |
                                     SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE |
                                     SSL_OP_PRIORITIZE_CHACHA);
    /* Clients that end without a close_notify are common, and HTTP says where a message ends. */
    SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_client_hello_cb(context, tls_server_on_client_hello, rate);
    SSL_CTX_set_cert_cb(context, tls_server_on_hello, (void *)(uintptr_t)pair);
    return ERROR_NONE;
}
