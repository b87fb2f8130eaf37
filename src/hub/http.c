#include "hub/http.h"

#include "base/authorities.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/version.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { HTTP_ATTEMPTS = 6, HTTP_PAUSE_MS = 500, HTTP_PAUSE_MS_MAX = 30 * 1000 };

/* ---- URLs ------------------------------------------------------------------------------------ */

struct http_url_parts {
    bool is_https;
    bool is_here; /* this machine */
    char host[HTTP_HOST];
};

static bool http_host_is_here(const char *host)
{
    return strcasecmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "[::1]") == 0;
}

/* libcurl's own reader, so that what was checked is what is connected to. A name such as
 * 127.example.org is no address. */
static bool http_url_read(const char *url, struct http_url_parts *out)
{
    char *scheme = NULL, *host = NULL, *port = NULL, *user = NULL;
    CURLU *parsed = curl_url();
    bool holds = false;
    if (parsed && !curl_url_set(parsed, CURLUPART_URL, url, 0) &&
        !curl_url_get(parsed, CURLUPART_SCHEME, &scheme, 0) &&
        !curl_url_get(parsed, CURLUPART_HOST, &host, 0) &&
        !curl_url_get(parsed, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) &&
        curl_url_get(parsed, CURLUPART_USER, &user, 0) == CURLUE_NO_USER) {
        out->is_https = strcmp(scheme, "https") == 0;
        out->is_here = http_host_is_here(host) &&
                       (host[0] != '1' || host[strspn(host, "0123456789.")] == '\0');
        const int length = snprintf(out->host, sizeof out->host, "%s:%s", host, port);
        holds = (out->is_https || strcmp(scheme, "http") == 0) && length > 0 &&
                (size_t)length < sizeof out->host;
    }
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_free(user);
    curl_url_cleanup(parsed);
    return holds;
}

enum error_code http_url_check(const char *url, bool plain, struct error *err)
{
    struct http_url_parts parts;
    if (strlen(url) >= HTTP_URL || !http_url_read(url, &parts))
        return error_set(err, ERROR_INVALID, "not a URL of HTTPS without a user or password");
    if (!parts.is_https && !parts.is_here && !plain)
        return error_set(err, ERROR_INVALID,
                         "%s by http:// would be read and changed by anybody on the way; use "
                         "https://, or --allow-http",
                         parts.host);
    return ERROR_NONE;
}

void http_url_host(const char *url, char out[HTTP_HOST])
{
    struct http_url_parts parts;
    snprintf(out, HTTP_HOST, "%s", http_url_read(url, &parts) ? parts.host : "?");
}

bool http_url_is_private(const char *url)
{
    struct http_url_parts parts;
    return http_url_read(url, &parts) && (parts.is_https || parts.is_here);
}

/* ---- a request ------------------------------------------------------------------------------- */

static size_t http_on_header(char *bytes, size_t size, size_t count, void *head)
{
    http_head_line(head, bytes, size * count);
    return size * count;
}

static bool http_add_header(struct curl_slist **headers, const char *name, const char *value)
{
    char line[HTTP_TOKEN + 128];
    snprintf(line, sizeof line, "%s: %s", name, value);
    struct curl_slist *longer = curl_slist_append(*headers, line);
    *headers = longer ? longer : *headers;
    return longer;
}

/* libcurl leaves the header Authorization out where a redirect leads to another host, port or
 * scheme (since 7.83; CURLOPT_UNRESTRICTED_AUTH is off). */
static bool http_set_headers(const struct http_get *get)
{
    char bearer[HTTP_TOKEN + 16];
    *get->headers = NULL;
    snprintf(bearer, sizeof bearer, "Bearer %s", get->place->token);
    return (!get->accept || http_add_header(get->headers, "Accept", get->accept)) &&
           (!get->place->token[0] || !http_url_is_private(get->url) ||
            http_add_header(get->headers, "Authorization", bearer));
}

static int http_on_progress(void *stop, curl_off_t all_down, curl_off_t down, curl_off_t all_up,
                            curl_off_t up)
{
    (void)all_down, (void)down, (void)all_up, (void)up;
    return atomic_load((const atomic_bool *)stop);
}

enum error_code http_prepare(CURL *curl, const struct http_get *get, struct error *err)
{
    char range[64];
    bool failed = false;
    struct http_url_parts parts;
    enum error_code code = http_url_check(get->url, get->place->plain, err);
    if (code)
        return code;
    http_url_read(get->url, &parts);
    const char *authorities = authorities_file();
    *get->head = (struct http_head){0};
    get->problem[0] = '\0';
    curl_easy_reset(curl);
#define HTTP_SET(option, value) failed |= curl_easy_setopt(curl, option, value) != CURLE_OK
    HTTP_SET(CURLOPT_URL, get->url);
    HTTP_SET(CURLOPT_PROTOCOLS_STR, "http,https");
    HTTP_SET(CURLOPT_REDIR_PROTOCOLS_STR, parts.is_https ? "https" : "http,https");
    HTTP_SET(CURLOPT_FOLLOWLOCATION, 1L);
    HTTP_SET(CURLOPT_MAXREDIRS, (long)HTTP_REDIRECTS);
    HTTP_SET(CURLOPT_UNRESTRICTED_AUTH, 0L);
    HTTP_SET(CURLOPT_SSL_VERIFYPEER, 1L);
    HTTP_SET(CURLOPT_SSL_VERIFYHOST, 2L);
    if (authorities)
        HTTP_SET(CURLOPT_CAINFO, authorities);
    /* Several connections, not several streams of one. */
    HTTP_SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    HTTP_SET(CURLOPT_NOSIGNAL, 1L);
    HTTP_SET(CURLOPT_CONNECTTIMEOUT_MS, (long)HTTP_CONNECT_MS);
    HTTP_SET(CURLOPT_LOW_SPEED_LIMIT, 1L);
    HTTP_SET(CURLOPT_LOW_SPEED_TIME, (long)HTTP_STALL_S);
    HTTP_SET(CURLOPT_USERAGENT, "medley/" MEDLEY_VERSION);
    HTTP_SET(CURLOPT_HEADERFUNCTION, http_on_header);
    HTTP_SET(CURLOPT_HEADERDATA, get->head);
    HTTP_SET(CURLOPT_ERRORBUFFER, get->problem);
    if (get->place->stop) {
        HTTP_SET(CURLOPT_XFERINFOFUNCTION, http_on_progress);
        HTTP_SET(CURLOPT_XFERINFODATA, (void *)(uintptr_t)get->place->stop);
        HTTP_SET(CURLOPT_NOPROGRESS, 0L);
    }
    snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)get->from,
             (unsigned long long)get->to - 1);
    if (get->to > get->from)
        HTTP_SET(CURLOPT_RANGE, range);
    failed |= !http_set_headers(get);
    HTTP_SET(CURLOPT_HTTPHEADER, *get->headers);
#undef HTTP_SET
    return failed ? error_set(err, ERROR_INTERNAL, "libcurl lacks what a safe GET needs")
                  : ERROR_NONE;
}

/* ---- what came of it ------------------------------------------------------------------------- */

enum http_outcome http_judge(CURLcode code, long status)
{
    static const long again[] = {408, 425, 429, 500, 502, 503, 504};
    switch ((int)code) {
    case CURLE_OK:
        break;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_ABORTED_BY_CALLBACK:
        return HTTP_HOPELESS;
    default:
        return HTTP_AGAIN;
    }
    if (status >= 200 && status <= 299)
        return HTTP_FINE;
    for (size_t i = 0; i < sizeof again / sizeof *again; i++) {
        if (status == again[i])
            return HTTP_AGAIN;
    }
    return HTTP_HOPELESS;
}

enum error_code http_explain(CURLcode code, const struct http_get *get, const char *what,
                             struct error *err)
{
    char host[HTTP_HOST];
    const long status = get->head->status;
    const bool has_token = get->place->token[0];
    http_url_host(get->url, host);
    if (code == CURLE_UNSUPPORTED_PROTOCOL)
        return error_set(err, ERROR_INVALID, "%s: %s sends on to a place that is not HTTPS", what,
                         host);
    if (code)
        return error_set(err, ERROR_IO, "%s: %s: %s", what, host,
                         get->problem[0] ? get->problem : curl_easy_strerror(code));
    if (status == 401 || status == 403)
        return error_set(err, ERROR_INVALID, "%s: %s answered %ld: %s", what, host, status,
                         has_token ? "the token is not good for it; accept the model's terms on "
                                     "its page, or use a token that may read it"
                                   : "it wants a token, or there is no such model; set HF_TOKEN, "
                                     "or give --token-file");
    if (status == 404)
        return error_set(err, ERROR_NOT_FOUND, "%s: %s has none of that name", what, host);
    if (status == 429)
        return error_set(err, ERROR_BUSY, "%s: %s has had enough requests for now; try later", what,
                         host);
    return error_set(err, ERROR_IO, "%s: %s answered %ld", what, host, status);
}

/* Half of it is drawn, so that many who were turned away together do not come back together. */
uint32_t http_pause_ms(uint32_t attempt, uint32_t retry_after_s)
{
    uint32_t pause_ms = HTTP_PAUSE_MS;
    assert(attempt >= 1 && retry_after_s <= HTTP_RETRY_AFTER_S);
    for (uint32_t i = 1; i < attempt && pause_ms < HTTP_PAUSE_MS_MAX; i++)
        pause_ms *= 2;
    pause_ms = pause_ms < HTTP_PAUSE_MS_MAX ? pause_ms : HTTP_PAUSE_MS_MAX;
    pause_ms = pause_ms / 2 + (uint32_t)(clock_now_ns() / 1000 % (pause_ms / 2));
    return retry_after_s * 1000 > pause_ms ? retry_after_s * 1000 : pause_ms;
}

void http_tell_again(const struct error *err, uint32_t attempt, uint32_t attempts,
                     uint32_t pause_ms)
{
    log_line(LOG_WARN, "hub", "%s; attempt %u of %u in %.1f s", err->text, attempt + 1, attempts,
             pause_ms / 1000.0);
}

/* ---- a small text ---------------------------------------------------------------------------- */

struct http_room {
    struct buffer *out;
    size_t bytes_max;
    bool is_full;
};

static size_t http_on_text(char *bytes, size_t size, size_t count, void *arg)
{
    struct http_room *room = arg;
    const size_t n = size * count;
    room->is_full |= n > room->bytes_max - room->out->size;
    if (room->is_full)
        return 0;
    buffer_append(room->out, bytes, n);
    return room->out->failed ? 0 : n;
}

enum { HTTP_SLEEP_MS = 100 };

static void http_sleep_ms(uint32_t ms, const atomic_bool *stop)
{
    while (ms && !(stop && atomic_load(stop))) {
        const uint32_t piece = ms < HTTP_SLEEP_MS ? ms : HTTP_SLEEP_MS;
        const struct timespec pause = {0, (long)piece * 1000000};
        nanosleep(&pause, NULL);
        ms -= piece;
    }
}

static enum error_code http_text_once(CURL *curl, const struct http_get *get, const char *what,
                                      struct http_room *room, enum http_outcome *outcome,
                                      struct error *err)
{
    *outcome = HTTP_HOPELESS;
    enum error_code code = http_prepare(curl, get, err);
    if (!code && (curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, http_on_text) ||
                  curl_easy_setopt(curl, CURLOPT_WRITEDATA, room)))
        code = error_set(err, ERROR_INTERNAL, "libcurl lacks what a safe GET needs");
    if (!code) {
        buffer_clear(room->out);
        const CURLcode came = curl_easy_perform(curl);
        *outcome = room->is_full ? HTTP_HOPELESS : http_judge(came, get->head->status);
        if (room->is_full)
            code = error_set(err, ERROR_INVALID, "%s: the answer is larger than %zu bytes", what,
                             room->bytes_max);
        else if (*outcome != HTTP_FINE)
            code = http_explain(came, get, what, err);
    }
    curl_slist_free_all(*get->headers);
    *get->headers = NULL;
    return code;
}

enum error_code http_text(const char *url, const struct http_place *place, const char *accept,
                          size_t bytes_max, const char *what, struct buffer *out,
                          struct http_head *head, struct error *err)
{
    char problem[CURL_ERROR_SIZE];
    struct http_head own;
    struct curl_slist *headers = NULL;
    struct http_room room = {.out = out, .bytes_max = bytes_max};
    enum http_outcome outcome = HTTP_AGAIN;
    enum error_code code = ERROR_NONE;
    CURL *curl = curl_easy_init();
    if (!curl)
        return error_set(err, ERROR_NO_MEMORY, "libcurl cannot begin: not enough memory");
    const struct http_get get = {url, place, accept, 0, 0, head ? head : &own, &headers, problem};
    for (uint32_t attempt = 1; outcome == HTTP_AGAIN; attempt++) {
        code = http_text_once(curl, &get, what, &room, &outcome, err);
        if (outcome == HTTP_AGAIN && attempt == HTTP_ATTEMPTS)
            break;
        if (outcome == HTTP_AGAIN) {
            const uint32_t pause_ms = http_pause_ms(attempt, get.head->retry_after_s);
            http_tell_again(err, attempt, HTTP_ATTEMPTS, pause_ms);
            http_sleep_ms(pause_ms, place->stop);
        }
    }
    curl_easy_cleanup(curl);
    return code;
}
