#include "api/page.h"

#include "api/exchange.h"
#include "api/internal.h"

#include <zlib.h>

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { GZIP_WINDOW = 15 + 16 }; /* zlib.h: the largest window, with gzip's header */

static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; manifest-src 'self'; font-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

/* What a browser is to do with the page, beside its type. */
static const struct {
    const char *name, *value;
} page_headers[] = {
    {"content-security-policy:", policy},
    {"x-content-type-options:", "nosniff"},
    {"x-frame-options:", "DENY"}, /* for browsers that do not know frame-ancestors */
    {"referrer-policy:", "no-referrer"},
    {"cross-origin-opener-policy:", "same-origin"},
    {"cross-origin-resource-policy:", "same-origin"},
    {"vary:", "accept-encoding"},
};

const struct page_file *page_find(const char *path)
{
    for (size_t i = 0; i < n_page_files; i++) {
        if (strcmp(page_files[i].path, path) == 0)
            return &page_files[i];
    }
    return NULL;
}

bool page_takes_gzip(const char *accept_encoding)
{
    static const char gzip[] = "gzip";
    const char *at = accept_encoding ? accept_encoding : "";
    while (*at) {
        at += strspn(at, ", \t");
        const size_t size = strcspn(at, ",");
        if (strncasecmp(at, gzip, sizeof gzip - 1) == 0) {
            const char *rest = at + sizeof gzip - 1;
            rest += strspn(rest, " \t");
            const size_t weight = (size_t)(at + size - rest);
            /* ";q=0" and "; q=0.0" refuse */
            return *rest == '\0' || *rest == ',' ||
                   (*rest == ';' && strcspn(rest, "123456789") < weight);
        }
        at += size;
    }
    return false;
}

bool page_is_had(const struct page_file *file, const char *if_none_match)
{
    char tag[64];
    snprintf(tag, sizeof tag, "\"%s\"", file->hash);
    return if_none_match && (strstr(if_none_match, tag) || strcmp(if_none_match, "*") == 0);
}

/* What the build has compressed decompresses, to the size that it has noted. */
static void page_decompress(const struct page_file *file, struct buffer *out)
{
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)file->gzip,
                       .avail_in = (uInt)file->gzip_size,
                       .avail_out = (uInt)file->size};
    stream.next_out = buffer_extend(out, file->size);
    if (!stream.next_out)
        return;
    if (inflateInit2(&stream, GZIP_WINDOW) != Z_OK) {
        out->failed = true;
        return;
    }
    const int result = inflate(&stream, Z_FINISH);
    inflateEnd(&stream);
    assert(result == Z_STREAM_END || result == Z_MEM_ERROR);
    out->failed |= result != Z_STREAM_END;
}

void page_write(const struct page_file *file, bool gzip, struct buffer *out)
{
    if (gzip)
        buffer_append(out, file->gzip, file->gzip_size);
    else if (file->size)
        page_decompress(file, out);
}

void page_handle(struct exchange *exchange)
{
    const struct page_file *file =
        exchange_server(exchange)->serves_page ? page_find(exchange_path(exchange).data) : NULL;
    char encoding[256], had[256], tag[64];
    struct buffer body = {0};
    if (!file) {
        struct api_error err;
        api_error_set(&err, 404, "invalid_request_error", "unknown_url",
                      "there is no page %s here; `medley up` serves one at /",
                      exchange_path(exchange).data);
        exchange_fail(exchange, &err);
        return;
    }
    const bool gzip = page_takes_gzip(
        exchange_header(exchange, EXCHANGE_ACCEPT_ENCODING, encoding, sizeof encoding));
    for (size_t i = 0; i < sizeof page_headers / sizeof *page_headers; i++)
        exchange_set_header(exchange, page_headers[i].name, page_headers[i].value);
    snprintf(tag, sizeof tag, "W/\"%s\"", file->hash); /* weak: the same for both encodings */
    exchange_set_header(exchange, "etag:", tag);
    exchange_set_header(exchange, "cache-control:",
                        file->is_immutable ? "public, max-age=31536000, immutable" : "no-cache");
    if (page_is_had(file, exchange_header(exchange, EXCHANGE_IF_NONE_MATCH, had, sizeof had))) {
        exchange_answer(exchange, 304, NULL, &body);
        return;
    }
    if (gzip)
        exchange_set_header(exchange, "content-encoding:", "gzip");
    page_write(file, gzip, &body);
    exchange_answer(exchange, 200, file->type, &body);
}
