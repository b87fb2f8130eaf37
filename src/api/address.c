#include "api/address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum error_code parse_port(const char *text, uint16_t *out, struct error *err)
{
    unsigned port = 0;
    size_t length = strspn(text, "0123456789");
    if (length == 0 || length > 5 || text[length] ||
        (port = (unsigned)strtoul(text, NULL, 10)) > 65535)
        return error_set(err, ERROR_INVALID, "'%s' is not a port (0 to 65535)", text);
    *out = (uint16_t)port;
    return ERROR_NONE;
}

enum error_code api_address_parse(const char *text, struct api_address *out, struct error *err)
{
    *out = (struct api_address){0};
    const char *host = text;
    const char *colon = strrchr(text, ':');
    if (!colon)
        return error_set(err, ERROR_INVALID,
                         "'%s' has no port; give HOST:PORT, :PORT or [::1]:PORT", text);
    const char *end = colon;
    if (text[0] == '[') {
        if (colon == text || colon[-1] != ']')
            return error_set(err, ERROR_INVALID, "'%s' has no port after ']'", text);
        host = text + 1;
        end = colon - 1;
    } else if (memchr(text, ':', (size_t)(colon - text))) {
        return error_set(err, ERROR_INVALID,
                         "'%s': put an IPv6 address in brackets, as in [::1]:8080", text);
    }
    if ((size_t)(end - host) >= sizeof out->host)
        return error_set(err, ERROR_INVALID, "the host name is too long");
    snprintf(out->host, sizeof out->host, "%.*s", (int)(end - host), host);
    if (!out->host[0])
        snprintf(out->host, sizeof out->host, "127.0.0.1");
    return parse_port(colon + 1, &out->port, err);
}

bool api_address_is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return (ntohl(v4.s_addr) >> 24) == 127;
    if (inet_pton(AF_INET6, host, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6);
    return strcmp(host, "localhost") == 0;
}
