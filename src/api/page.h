/* The dashboard: files that the build makes of dashboard/ and puts into the binary, compressed
 * (tools/embed_page.mjs). Every node serves them at `/`; they need no token, because they are the
 * same for everybody and hold nothing of the cluster: what they show comes from the API.
 *
 * They are the only thing here that a browser renders, so they come with a policy under which a
 * page loads nothing from elsewhere and runs no script that is not one of these files. Pure, but
 * for page_handle(). */
#pragma once

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct exchange;

struct page_file {
    const char *path; /* "/" is index.html */
    const char *type;
    const char *hash; /* of the bytes, for ETag */
    const uint8_t *gzip;
    size_t gzip_size;
    size_t size;       /* decompressed */
    bool is_immutable; /* its name has a hash of what is in it */
};

extern const struct page_file page_files[];
extern const size_t n_page_files;

const struct page_file *page_find(const char *path); /* NULL: there is none */

/* RFC 9110, section 12.5.3: whether the client takes gzip; NULL: there is no such header. */
bool page_takes_gzip(const char *accept_encoding);
/* RFC 9110, section 13.1.2: whether the client has the file already. */
bool page_is_had(const struct page_file *file, const char *if_none_match);
/* The file's bytes; `out` is failed when there is no memory. */
void page_write(const struct page_file *file, bool gzip, struct buffer *out);

void page_handle(struct exchange *exchange); /* the routes' handler */
