/* How a call ends: gRPC's codes (https://grpc.io/docs/guides/status-codes/), what HTTP's and
 * docs/control.md's errors are among them, and the texts of its headers. Pure; fuzzed. */
#pragma once

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum grpc_code {
    GRPC_OK = 0,
    GRPC_CANCELLED = 1,
    GRPC_UNKNOWN = 2,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_NOT_FOUND = 5,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_FAILED_PRECONDITION = 9,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
    GRPC_UNAUTHENTICATED = 16,
};

enum { GRPC_MESSAGE_MAX = 1024 };

struct grpc_status {
    enum grpc_code code;
    char message[GRPC_MESSAGE_MAX]; /* what to do */
};

void grpc_status_set(struct grpc_status *status, enum grpc_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

enum grpc_code grpc_code_of_http(unsigned status);
/* Of an error's `code` or `type`, as answers that have begun tell it; NULL: neither is known. */
enum grpc_code grpc_code_of_name(const char *code, const char *type);

/* As `grpc-message` has it: what is no printable ASCII, and '%', in hex behind a '%'. */
void grpc_status_escape(const char *message, struct buffer *out);

/* `grpc-timeout`: at most 8 digits and a unit. False: it is none. */
bool grpc_timeout_parse(const char *text, size_t size, uint64_t *ns);
