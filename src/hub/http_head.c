/* The head of an answer. Foreign bytes: each field is taken where it holds, and is else not there.
 * Fields: RFC 9110, sections 8.8.3 (ETag), 10.2.3 (Retry-After), 14.4 (Content-Range); RFC 8288
 * (Link). */
#include "hub/http.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* Digits alone, at most 18: no sum of two overflows. */
static bool http_number(const char **at, uint64_t *out)
{
    const size_t digits = strspn(*at, "0123456789");
    if (digits == 0 || digits > 18)
        return false;
    *out = strtoull(*at, NULL, 10);
    *at += digits;
    return true;
}

static void http_take_range(struct http_head *head, const char *value)
{
    uint64_t from, to, total;
    if (strncasecmp(value, "bytes ", 6) != 0)
        return;
    value += 6;
    if (!http_number(&value, &from) || *value++ != '-' || !http_number(&value, &to) ||
        *value++ != '/' || !http_number(&value, &total) || *value || from > to || to >= total)
        return;
    head->has_range = true;
    head->from = from;
    head->to = to + 1;
    head->total = total;
}

static void http_take_retry(struct http_head *head, const char *value)
{
    uint64_t seconds = 0;
    const char *at = value;
    if (!http_number(&at, &seconds) || *at) {
        const time_t then = curl_getdate(value, NULL), now = time(NULL);
        seconds = then > now ? (uint64_t)(then - now) : 0;
    }
    head->retry_after_s = seconds > HTTP_RETRY_AFTER_S ? HTTP_RETRY_AFTER_S : (uint32_t)seconds;
}

static void http_take_next(struct http_head *head, const char *value)
{
    while ((value = strchr(value, '<'))) {
        const char *end = strchr(value, '>');
        if (!end)
            return;
        const char *rest = end + 1;
        const size_t parameters = strcspn(rest, ",");
        const char *relation = strstr(rest, "rel=\"next\"");
        if (relation && relation < rest + parameters && (size_t)(end - value) < HTTP_URL) {
            memcpy(head->next, value + 1, (size_t)(end - value) - 1);
            head->next[end - value - 1] = '\0';
            return;
        }
        value = rest;
    }
}

static void http_take_text(const char *value, char *out, size_t size)
{
    if (strncmp(value, "W/", 2) == 0 || strlen(value) >= size)
        return;
    memcpy(out, value, strlen(value) + 1);
}

static void http_take_field(struct http_head *head, const char *name, const char *value)
{
    if (strcasecmp(name, "content-range") == 0)
        http_take_range(head, value);
    else if (strcasecmp(name, "content-length") == 0)
        head->has_length = http_number(&value, &head->length) && !*value;
    else if (strcasecmp(name, "retry-after") == 0)
        http_take_retry(head, value);
    else if (strcasecmp(name, "etag") == 0)
        http_take_text(value, head->etag, sizeof head->etag);
    else if (strcasecmp(name, "x-linked-etag") == 0)
        http_take_text(value, head->linked_etag, sizeof head->linked_etag);
    else if (strcasecmp(name, "link") == 0)
        http_take_next(head, value);
}

static void http_head_restart(struct http_head *head)
{
    char linked[sizeof head->linked_etag];
    memcpy(linked, head->linked_etag, sizeof linked);
    *head = (struct http_head){0};
    memcpy(head->linked_etag, linked, sizeof linked);
}

void http_head_line(struct http_head *head, const char *line, size_t size)
{
    char text[HTTP_URL + 64];
    if (size >= sizeof text || memchr(line, '\0', size))
        return;
    memcpy(text, line, size);
    while (size > 0 && (unsigned char)text[size - 1] <= ' ')
        size--;
    text[size] = '\0';
    if (strncmp(text, "HTTP/", 5) == 0) {
        http_head_restart(head);
        const char *status = strchr(text, ' ');
        head->status = status ? strtol(status, NULL, 10) : 0;
        return;
    }
    char *colon = strchr(text, ':');
    if (!colon)
        return;
    *colon = '\0';
    http_take_field(head, text, colon + 1 + strspn(colon + 1, " \t"));
}
