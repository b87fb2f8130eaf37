/* What a connection's first bytes say it is: HTTP/1.1, which is libwebsockets', or HTTP/2 with
 * gRPC. In plain text HTTP/2 begins with its preface (RFC 9113, section 3.4). Over TLS, who offers
 * "h2" and not "http/1.1" (ALPN) gets HTTP/2: gRPC's clients do; browsers and curl offer both, and
 * stay with HTTP/1.1. Pure; fuzzed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum greeting_kind {
    GREETING_MORE, /* *wanted bytes, all in all, will tell more */
    GREETING_HTTP, /* or nothing that is known */
    GREETING_RPC,
};

enum { GREETING_MAX = 5 + 16 * 1024 }; /* a record of TLS with its head: more is never wanted */

enum greeting_kind greeting_read(const uint8_t *bytes, size_t size, bool is_tls, size_t *wanted);
