/* One attempt to deliver a message. */
#include "post/post_impl.h"

#include "base/authorities.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/version.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static size_t post_ignore_answer(char *bytes, size_t size, size_t count, void *post)
{
    (void)bytes, (void)post;
    return size * count;
}

/* A close does not wait for a receiver that does not answer. */
static int post_look_at_close(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    struct post *post = arg;
    (void)a, (void)b, (void)c, (void)d;
    const uint64_t give_up_ns = atomic_load(&post->give_up_ns);
    return give_up_ns && clock_now_ns() >= give_up_ns;
}

static bool post_add_header(struct post *post, const char *name, const char *value)
{
    char line[2048];
    const int length = snprintf(line, sizeof line, "%s:%s%s", name, value[0] ? " " : "", value);
    if (length < 0 || (size_t)length >= sizeof line || strpbrk(value, "\r\n"))
        return false;
    struct curl_slist *longer = curl_slist_append(post->headers, line);
    post->headers = longer ? longer : post->headers;
    return longer;
}

enum error_code post_prepare(struct post *post, struct error *err)
{
    const struct post_options *options = &post->options;
    if (options->ca_path && access(options->ca_path, R_OK))
        return error_set(err, ERROR_NOT_FOUND, "cannot read the authorities in %s",
                         options->ca_path);
    post->curl = curl_easy_init();
    if (!post->curl)
        return error_set(err, ERROR_NO_MEMORY, "libcurl cannot begin: not enough memory");
    if (!post_add_header(post, "Content-Type", options->content_type) ||
        !post_add_header(post, "Expect", "") || /* no question beforehand: bodies are small */
        (options->authorization && !post_add_header(post, "Authorization", options->authorization)))
        return error_set(err, ERROR_INVALID, "a header has to be one short line");
    CURL *curl = post->curl;
    const char *authorities = options->ca_path ? options->ca_path : authorities_file();
    bool failed = false;
#define POST_SET(option, value) failed |= curl_easy_setopt(curl, option, value) != CURLE_OK
    POST_SET(CURLOPT_URL, options->url);
    POST_SET(CURLOPT_PROTOCOLS_STR, "http,https");
    POST_SET(CURLOPT_FOLLOWLOCATION, 0L);
    POST_SET(CURLOPT_SSL_VERIFYPEER, 1L);
    POST_SET(CURLOPT_SSL_VERIFYHOST, 2L);
    if (authorities)
        POST_SET(CURLOPT_CAINFO, authorities);
    POST_SET(CURLOPT_NOSIGNAL, 1L);
    POST_SET(CURLOPT_TIMEOUT_MS, (long)options->timeout_ms);
    POST_SET(CURLOPT_CONNECTTIMEOUT_MS, (long)options->timeout_ms);
    POST_SET(CURLOPT_HTTPHEADER, post->headers);
    POST_SET(CURLOPT_USERAGENT, "medley/" MEDLEY_VERSION);
    POST_SET(CURLOPT_WRITEFUNCTION, post_ignore_answer);
    POST_SET(CURLOPT_XFERINFOFUNCTION, post_look_at_close);
    POST_SET(CURLOPT_XFERINFODATA, post);
    POST_SET(CURLOPT_NOPROGRESS, 0L);
    POST_SET(CURLOPT_POST, 1L);
#undef POST_SET
    return failed ? error_set(err, ERROR_INTERNAL, "libcurl lacks what a safe POST needs")
                  : ERROR_NONE;
}

static enum post_outcome post_judge_status(const struct post *post, long status)
{
    static const long again[] = {408, 425, 429, 500, 502, 503, 504};
    if (status >= 200 && status <= 299)
        return POST_ARRIVED;
    log_line(LOG_INFO, "post", "%s answered %ld", post->host, status);
    for (size_t i = 0; i < sizeof again / sizeof *again; i++) {
        if (status == again[i])
            return POST_AGAIN;
    }
    return POST_HOPELESS;
}

/* A certificate that does not hold now will not in a minute either, and whoever waits there must
 * not be given more tries than a person would want. */
static enum post_outcome post_judge_failure(const struct post *post, CURLcode code)
{
    log_line(LOG_INFO, "post", "%s: %s", post->host, curl_easy_strerror(code));
    switch ((int)code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_ABORTED_BY_CALLBACK:
        return POST_HOPELESS;
    default:
        return POST_AGAIN;
    }
}

enum post_outcome post_attempt(struct post *post, const struct buffer *body)
{
    long status = 0;
    char line[POST_SIGN_TEXT];
    struct curl_slist signature = {.data = line, .next = post->headers};
    const bool is_signed = post->options.sign;
    assert(post->curl);
    if (is_signed && !post->options.sign(post->options.sign_self, body, line, sizeof line))
        return POST_HOPELESS;
    if (curl_easy_setopt(post->curl, CURLOPT_HTTPHEADER, is_signed ? &signature : post->headers))
        return POST_AGAIN;
    if (curl_easy_setopt(post->curl, CURLOPT_POSTFIELDS, body->data ? body->data : "") ||
        curl_easy_setopt(post->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->size))
        return POST_AGAIN;
    const CURLcode code = curl_easy_perform(post->curl);
    if (code)
        return post_judge_failure(post, code);
    curl_easy_getinfo(post->curl, CURLINFO_RESPONSE_CODE, &status);
    return post_judge_status(post, status);
}
