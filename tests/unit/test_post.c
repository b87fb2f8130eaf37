/* Messages by HTTP POST, to a receiver of this test that answers as it is told. */
#include "base/clock.h"
#include "post/post.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- the receiver ---------------------------------------------------------------------------- */

enum { ANSWERS = 16 };

struct receiver {
    int fd;
    uint16_t port;
    SSL_CTX *tls;                 /* NULL: plain HTTP */
    const char *answers[ANSWERS]; /* status lines and headers; NULL: "200 OK" */
    atomic_bool hangs;            /* takes requests and answers nothing */
    atomic_uint n_requests;
    char last[8192];
    pthread_t thread;
};

struct receiver_stream {
    int fd;
    SSL *tls;
};

static int receiver_read(struct receiver_stream *stream, char *bytes, size_t size)
{
    return stream->tls ? SSL_read(stream->tls, bytes, (int)size)
                       : (int)read(stream->fd, bytes, size);
}

static void receiver_write(struct receiver_stream *stream, const char *text)
{
    if (stream->tls)
        SSL_write(stream->tls, text, (int)strlen(text));
    else if (write(stream->fd, text, strlen(text)) < 0)
        return;
}

/* One request: its head, and a body as long as that says. */
static bool receiver_take(struct receiver *receiver, struct receiver_stream *stream)
{
    size_t n = 0, wanted = SIZE_MAX;
    while (n < wanted && n + 1 < sizeof receiver->last) {
        const int got = receiver_read(stream, receiver->last + n, sizeof receiver->last - 1 - n);
        if (got <= 0)
            return false;
        n += (size_t)got;
        receiver->last[n] = '\0';
        const char *end = strstr(receiver->last, "\r\n\r\n");
        const char *length = strcasestr(receiver->last, "content-length:");
        if (end && length)
            wanted = (size_t)(end + 4 - receiver->last) + strtoul(length + 15, NULL, 10);
    }
    return true;
}

static void receiver_serve(struct receiver *receiver, struct receiver_stream *stream)
{
    char answer[512];
    if (stream->tls && SSL_accept(stream->tls) != 1)
        return;
    while (receiver_take(receiver, stream)) {
        const unsigned i = atomic_load(&receiver->n_requests);
        const char *line = i < ANSWERS ? receiver->answers[i] : NULL;
        atomic_fetch_add(&receiver->n_requests, 1);
        if (atomic_load(&receiver->hangs))
            continue;
        snprintf(answer, sizeof answer, "HTTP/1.1 %s\r\nContent-Length: 2\r\n\r\nok",
                 line ? line : "200 OK");
        receiver_write(stream, answer);
    }
}

static void *receiver_run(void *arg)
{
    struct receiver *receiver = arg;
    int fd;
    sigset_t pipe_signal; /* of this thread alone: the sender has to see to its own */
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, NULL);
    while ((fd = accept(receiver->fd, NULL, NULL)) >= 0) {
        struct receiver_stream stream = {.fd = fd};
        if (receiver->tls) {
            stream.tls = SSL_new(receiver->tls);
            SSL_set_fd(stream.tls, fd);
        }
        receiver_serve(receiver, &stream);
        SSL_free(stream.tls);
        close(fd);
    }
    return NULL;
}

static void receiver_open(struct receiver *receiver)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    receiver->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(receiver->fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(receiver->fd, 8), 0);
    assert_int_equal(getsockname(receiver->fd, (struct sockaddr *)&address, &size), 0);
    receiver->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&receiver->thread, NULL, receiver_run, receiver), 0);
}

static void receiver_close(struct receiver *receiver)
{
    shutdown(receiver->fd, SHUT_RDWR);
    pthread_join(receiver->thread, NULL);
    close(receiver->fd);
    SSL_CTX_free(receiver->tls);
}

/* ---- the sender ------------------------------------------------------------------------------ */

static struct post *open_to(const struct receiver *receiver, struct post_options options)
{
    char url[128];
    struct post *post = NULL;
    struct error err = {0};
    snprintf(url, sizeof url, "%s://127.0.0.1:%u/hook?secret=1", receiver->tls ? "https" : "http",
             receiver->port);
    options.url = url;
    options.pause_ms = options.pause_ms ? options.pause_ms : 1;
    if (post_open(&options, &post, &err))
        fail_msg("%s", err.text);
    return post;
}

static bool send_text(struct post *post, const char *text)
{
    struct buffer body = {0};
    buffer_text(&body, text);
    const bool taken = post_send(post, &body);
    assert_null(body.data);
    return taken;
}

static struct post_stats wait_for(struct post *post)
{
    struct post_stats stats;
    const uint64_t end_ns = clock_now_ns() + UINT64_C(20000000000);
    while ((stats = post_stats(post)).queued && clock_now_ns() < end_ns)
        usleep(1000);
    assert_int_equal(stats.queued, 0);
    return stats;
}

static void test_delivers(void **state)
{
    struct receiver receiver = {0};
    receiver_open(&receiver);
    struct post *post = open_to(&receiver, (struct post_options){.authorization = "Bearer abc"});
    assert_true(send_text(post, "{\"one\":1}"));
    assert_int_equal(wait_for(post).sent, 1);
    assert_non_null(strstr(receiver.last, "POST /hook?secret=1 HTTP/1.1\r\n"));
    assert_non_null(strstr(receiver.last, "Content-Type: application/json\r\n"));
    assert_non_null(strstr(receiver.last, "Authorization: Bearer abc\r\n"));
    assert_non_null(strstr(receiver.last, "\r\n\r\n{\"one\":1}"));
    assert_null(strstr(post_host(post), "secret"));
    post_close(post, 0);
    receiver_close(&receiver);
}

static void test_tries_again(void **state)
{
    struct receiver receiver = {.answers = {"503 Busy", "429 Slow down", NULL}};
    receiver_open(&receiver);
    struct post *post = open_to(&receiver, (struct post_options){0});
    assert_true(send_text(post, "x"));
    const struct post_stats stats = wait_for(post);
    assert_int_equal(stats.sent, 1);
    assert_int_equal(stats.retries, 2);
    assert_int_equal(receiver.n_requests, 3);
    post_close(post, 0);
    receiver_close(&receiver);
}

static void test_gives_up(void **state)
{
    struct receiver receiver = {.answers = {"500 No", "500 No", "500 No", NULL}};
    receiver_open(&receiver);
    struct post *post = open_to(&receiver, (struct post_options){.attempts = 3});
    assert_true(send_text(post, "first"));
    assert_true(send_text(post, "second"));
    const struct post_stats stats = wait_for(post);
    assert_int_equal(stats.given_up, 1);
    assert_int_equal(stats.sent, 1);
    assert_int_equal(receiver.n_requests, 4);
    post_close(post, 0);
    receiver_close(&receiver);
}

static void test_follows_no_redirect(void **state)
{
    struct receiver other = {0};
    receiver_open(&other);
    char answer[128];
    snprintf(answer, sizeof answer, "307 Elsewhere\r\nLocation: http://127.0.0.1:%u/", other.port);
    struct receiver receiver = {.answers = {answer, "400 Bad"}};
    receiver_open(&receiver);
    struct post *post = open_to(&receiver, (struct post_options){0});
    assert_true(send_text(post, "x"));
    assert_true(send_text(post, "y"));
    assert_int_equal(wait_for(post).given_up, 2);
    assert_int_equal(receiver.n_requests, 2);
    assert_int_equal(other.n_requests, 0);
    post_close(post, 0);
    receiver_close(&receiver);
    receiver_close(&other);
}

/* Nobody waits for a receiver that does not answer: not who sends, and not who closes. */
static void test_never_blocks(void **state)
{
    struct receiver receiver = {.hangs = true};
    receiver_open(&receiver);
    struct post *post =
        open_to(&receiver, (struct post_options){.queue_max = 4, .timeout_ms = 60000});
    for (int i = 0; i < 10; i++)
        send_text(post, "x");
    struct post_stats stats = post_stats(post);
    assert_int_equal(stats.queued, 4);
    assert_int_equal(stats.dropped, 6);
    const uint64_t begun_ns = clock_now_ns();
    post_close(post, 0);
    assert_true(clock_now_ns() - begun_ns < UINT64_C(10000000000)); /* of 60 s of patience */
    receiver_close(&receiver);
}

static bool join_short(struct buffer *into, const struct buffer *more)
{
    if (into->size + more->size > 4)
        return false;
    buffer_append(into, more->data, more->size);
    return !into->failed;
}

/* What waits while the first is under way goes out together, as far as it fits together. */
static void test_joins(void **state)
{
    struct receiver receiver = {.answers = {"503 Busy", NULL}};
    receiver_open(&receiver);
    struct post *post =
        open_to(&receiver, (struct post_options){.pause_ms = 300, .join = join_short});
    assert_true(send_text(post, "[0]"));
    const uint64_t end_ns = clock_now_ns() + UINT64_C(20000000000);
    while (post_stats(post).requests == 0 && clock_now_ns() < end_ns)
        usleep(1000);
    static const char *const texts[] = {"a", "b", "c", "d", "e", "f", "long", "g"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_true(send_text(post, texts[i]));
    assert_int_equal(post_stats(post).queued, 9);
    const struct post_stats stats = wait_for(post);
    assert_int_equal(stats.sent, 9);
    assert_int_equal(stats.requests, 5); /* [0], abcd, ef, long, g */
    assert_int_equal(receiver.n_requests, 6);
    assert_non_null(strstr(receiver.last, "\r\n\r\ng"));
    assert_true(send_text(post, "1"));
    assert_int_equal(wait_for(post).sent, 10);
    post_close(post, 0);
    receiver_close(&receiver);
}

static void test_bounds_bytes(void **state)
{
    struct receiver receiver = {.hangs = true};
    receiver_open(&receiver);
    struct post *post = open_to(&receiver, (struct post_options){.queue_bytes = 10});
    assert_true(send_text(post, "123456"));
    assert_false(send_text(post, "12345"));
    assert_true(send_text(post, "1234"));
    struct buffer failed = {.failed = true};
    assert_false(post_send(post, &failed));
    assert_int_equal(post_stats(post).dropped, 2);
    post_close(post, 0);
    receiver_close(&receiver);
}

static void test_lingers(void **state)
{
    struct receiver receiver = {0};
    receiver_open(&receiver);
    struct post *post = open_to(&receiver, (struct post_options){0});
    for (int i = 0; i < 20; i++)
        assert_true(send_text(post, "x"));
    post_close(post, 20000);
    assert_int_equal(receiver.n_requests, 20);
    receiver_close(&receiver);
}

/* ---- HTTPS ----------------------------------------------------------------------------------- */

/* Signed by itself, for this host's address or for another. */
static void make_certificate(struct receiver *receiver, const char *names, char *path)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    X509V3_CTX context;
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                               (const unsigned char *)"test", -1, -1, 0);
    X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
    X509_set_pubkey(certificate, key);
    X509V3_set_ctx(&context, certificate, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, NID_subject_alt_name, names);
    assert_non_null(extension);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
    assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
    receiver->tls = SSL_CTX_new(TLS_server_method());
    assert_int_equal(SSL_CTX_use_certificate(receiver->tls, certificate), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(receiver->tls, key), 1);
    strcpy(path, "/tmp/medley-post-XXXXXX");
    FILE *file = fdopen(mkstemp(path), "w");
    PEM_write_X509(file, certificate);
    fclose(file);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

static void test_checks_certificates(void **state)
{
    static const struct {
        const char *names;
        bool trusted;
        unsigned sent;
    } cases[] = {
        {"IP:127.0.0.1", true, 1},
        {"IP:127.0.0.1", false, 0},      /* signed by nobody who is known */
        {"DNS:elsewhere.test", true, 0}, /* for another host */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct receiver receiver = {0};
        char path[64];
        make_certificate(&receiver, cases[i].names, path);
        receiver_open(&receiver);
        struct post *post =
            open_to(&receiver, (struct post_options){.ca_path = cases[i].trusted ? path : NULL});
        assert_true(send_text(post, "secret"));
        const struct post_stats stats = wait_for(post);
        assert_int_equal(stats.sent, cases[i].sent);
        assert_int_equal(stats.given_up, 1 - cases[i].sent);
        assert_int_equal(stats.retries, 0);
        assert_int_equal(receiver.n_requests, cases[i].sent); /* and it saw no byte of it */
        post_close(post, 0);
        receiver_close(&receiver);
        unlink(path);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void test_refuses_urls(void **state)
{
    static const char *const wrong[] = {
        "",
        "hooks",
        "file:///etc/passwd",
        "ftp://a/b",
        "gopher://a/",
        "http://",
        "https://a b/",
        "https://a/\nX: y",
        "https://[::1",
        "smtp://a",
        "javascript:alert(1)",
        "http://a:99999/",
    };
    struct error err;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (post_check_url(wrong[i], &err) != ERROR_INVALID)
            fail_msg("took '%s'", wrong[i]);
    }
    assert_int_equal(post_check_url(NULL, &err), ERROR_INVALID);
    assert_int_equal(post_check_url("https://hooks.example.org/a?b=c", &err), ERROR_NONE);
    assert_int_equal(post_check_url("http://[::1]:4318/v1/traces", &err), ERROR_NONE);
    struct post *post = NULL;
    const struct post_options two_lines = {.url = "http://127.0.0.1/",
                                           .authorization = "a\r\nb: c"};
    assert_int_equal(post_open(&two_lines, &post, &err), ERROR_INVALID);
    const struct post_options no_file = {.url = "https://a/", .ca_path = "/nowhere"};
    assert_int_equal(post_open(&no_file, &post, &err), ERROR_NOT_FOUND);
    assert_null(post);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delivers),
        cmocka_unit_test(test_tries_again),
        cmocka_unit_test(test_gives_up),
        cmocka_unit_test(test_follows_no_redirect),
        cmocka_unit_test(test_never_blocks),
        cmocka_unit_test(test_joins),
        cmocka_unit_test(test_bounds_bytes),
        cmocka_unit_test(test_lingers),
        cmocka_unit_test(test_checks_certificates),
        cmocka_unit_test(test_refuses_urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
