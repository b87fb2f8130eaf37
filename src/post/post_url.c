#include "base/mem.h"
#include "post/post_impl.h"

#include <stdio.h>
#include <string.h>

enum { POST_URL_MAX = 2048 };

static bool post_url_is_printable(const char *url)
{
    for (; *url; url++) {
        if (*url <= ' ' || *url == 0x7f)
            return false;
    }
    return true;
}

static char *post_url_join(const char *host, const char *port)
{
    char text[512];
    const int length = snprintf(text, sizeof text, "%s:%s", host, port);
    return length > 0 && (size_t)length < sizeof text ? mem_copy_text(text, (size_t)length) : NULL;
}

/* libcurl's own reader, so that what was checked is what is connected to. */
static enum error_code post_url_parse(CURLU *parsed, const char *url, char **host,
                                      struct error *err)
{
    char *scheme = NULL, *name = NULL, *port = NULL;
    enum error_code code = ERROR_NONE;
    if (curl_url_set(parsed, CURLUPART_URL, url, 0) ||
        curl_url_get(parsed, CURLUPART_SCHEME, &scheme, 0) ||
        curl_url_get(parsed, CURLUPART_HOST, &name, 0) || !name[0] ||
        curl_url_get(parsed, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT))
        code = error_set(err, ERROR_INVALID, "not a URL; write https://HOST/PATH");
    else if (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0)
        code = error_set(err, ERROR_INVALID, "a URL of %.20s; write https:// or http://", scheme);
    else if (host && !(*host = post_url_join(name, port)))
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for a URL");
    curl_free(scheme);
    curl_free(name);
    curl_free(port);
    return code;
}

enum error_code post_url_host(const char *url, char **host, struct error *err)
{
    if (!url || !url[0] || strlen(url) > POST_URL_MAX || !post_url_is_printable(url))
        return error_set(err, ERROR_INVALID, "not a URL; write https://HOST/PATH");
    CURLU *parsed = curl_url();
    if (!parsed)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a URL");
    const enum error_code code = post_url_parse(parsed, url, host, err);
    curl_url_cleanup(parsed);
    return code;
}

enum error_code post_check_url(const char *url, struct error *err)
{
    return post_url_host(url, NULL, err);
}
