#include "api/greeting.h"

#include <assert.h>
#include <string.h>

enum { TLS_RECORD_HEAD = 5, TLS_HANDSHAKE = 22, TLS_CLIENT_HELLO = 1, TLS_ALPN = 16 };

struct greeting_bytes {
    const uint8_t *at;
    size_t left;
};

/* A number of n bytes; false: they are not there. */
static bool greeting_number(struct greeting_bytes *bytes, unsigned n, size_t *out)
{
    *out = 0;
    if (bytes->left < n)
        return false;
    for (unsigned i = 0; i < n; i++)
        *out = *out << 8 | bytes->at[i];
    bytes->at += n;
    bytes->left -= n;
    return true;
}

/* So many bytes as a number of n bytes says. */
static bool greeting_part(struct greeting_bytes *bytes, unsigned n, struct greeting_bytes *out)
{
    size_t size;
    if (!greeting_number(bytes, n, &size) || bytes->left < size)
        return false;
    *out = (struct greeting_bytes){bytes->at, size};
    bytes->at += size;
    bytes->left -= size;
    return true;
}

static bool greeting_offers_rpc(struct greeting_bytes extension)
{
    struct greeting_bytes names, name;
    bool has_h2 = false, has_http = false;
    if (!greeting_part(&extension, 2, &names))
        return false;
    while (greeting_part(&names, 1, &name)) {
        has_h2 |= name.left == 2 && memcmp(name.at, "h2", 2) == 0;
        has_http |= name.left == 8 && memcmp(name.at, "http/1.1", 8) == 0;
    }
    return has_h2 && !has_http;
}

/* RFC 8446, section 4.1.2: version, random, session, suites, compression, extensions. */
static bool greeting_hello_is_rpc(struct greeting_bytes hello)
{
    struct greeting_bytes part, extensions, extension;
    size_t type, size;
    if (!greeting_number(&hello, 1, &type) || type != TLS_CLIENT_HELLO ||
        !greeting_number(&hello, 3, &size) || hello.left < 2 + 32)
        return false;
    hello.at += 2 + 32;
    hello.left -= 2 + 32;
    if (!greeting_part(&hello, 1, &part) || !greeting_part(&hello, 2, &part) ||
        !greeting_part(&hello, 1, &part) || !greeting_part(&hello, 2, &extensions))
        return false;
    while (greeting_number(&extensions, 2, &type) && greeting_part(&extensions, 2, &extension)) {
        if (type == TLS_ALPN)
            return greeting_offers_rpc(extension);
    }
    return false;
}

/* One record is looked at: who spreads a hello over several gets HTTP/1.1. */
static enum greeting_kind greeting_read_tls(const uint8_t *bytes, size_t size, size_t *wanted)
{
    if (size && bytes[0] != TLS_HANDSHAKE)
        return GREETING_HTTP;
    *wanted = TLS_RECORD_HEAD;
    if (size < TLS_RECORD_HEAD)
        return GREETING_MORE;
    *wanted = TLS_RECORD_HEAD + ((size_t)bytes[3] << 8 | bytes[4]);
    if (*wanted > GREETING_MAX)
        return GREETING_HTTP;
    if (size < *wanted)
        return GREETING_MORE;
    const struct greeting_bytes hello = {bytes + TLS_RECORD_HEAD, *wanted - TLS_RECORD_HEAD};
    return greeting_hello_is_rpc(hello) ? GREETING_RPC : GREETING_HTTP;
}

enum greeting_kind greeting_read(const uint8_t *bytes, size_t size, bool is_tls, size_t *wanted)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n";
    const size_t n = sizeof preface - 1;
    if (is_tls)
        return greeting_read_tls(bytes, size, wanted);
    if (memcmp(bytes, preface, size < n ? size : n) != 0)
        return GREETING_HTTP;
    *wanted = n;
    return size < n ? GREETING_MORE : GREETING_RPC;
}
