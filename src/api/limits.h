/* What clients may take of the API, in one table. Each row has a name, by which
 * `--limit NAME=VALUE` sets it, by which docs/api-limits.md explains it, and which stands in every
 * answer that it causes. Pure.
 *
 * Limits of one request's fields are in base/limits.h: they are the API's shape, not its share. */
#pragma once

#include "api/errors.h"
#include "base/error.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum api_limit_unit { API_LIMIT_BYTES, API_LIMIT_MS, API_LIMIT_COUNT };

/* ROW(field, name, unit, default, lowest, what it bounds) */
#define API_LIMITS(ROW)                                                                            \
    ROW(memory, "memory", BYTES, UINT64_C(512) << 20, UINT64_C(16) << 20,                          \
        "bodies, what is read of them, tokens and answers of all requests together")               \
    ROW(request_memory, "request-memory", BYTES, UINT64_C(256) << 20, UINT64_C(1) << 20,           \
        "the same of one request, its body included")                                              \
    ROW(bodies, "bodies", BYTES, UINT64_C(256) << 20, UINT64_C(1) << 20,                           \
        "bodies of all requests that arrive or wait to be read")                                   \
    ROW(body, "body", BYTES, LIMIT_BODY_BYTES, UINT64_C(1) << 10, "one body")                      \
    ROW(prepare_time, "prepare-time", MS, 10 * 1000, 10,                                           \
        "processor time of one step of a request's preparation: reading, rendering and "           \
        "tokenising, or writing a large answer")                                                   \
    ROW(waiting, "waiting", COUNT, 1024, 1, "requests that wait to be prepared")                   \
    ROW(client_waiting, "client-waiting", COUNT, 512, 1, "the same, of one client")                \
    ROW(client_bodies, "client-bodies", BYTES, UINT64_C(128) << 20, UINT64_C(1) << 20,             \
        "bodies of one client that arrive or wait to be read")                                     \
    ROW(answers, "answers", BYTES, UINT64_C(256) << 20, UINT64_C(1) << 20,                         \
        "answers that clients have not read yet")                                                  \
    ROW(client_answers, "client-answers", BYTES, UINT64_C(128) << 20, UINT64_C(1) << 20,           \
        "the same, of one client")                                                                 \
    ROW(connections, "connections", COUNT, 1024, 4,                                                \
        "connections; not more than half of the descriptors that the process may have")            \
    ROW(client_connections, "client-connections", COUNT, 512, 2, "the same, of one client")

struct api_limits {
#define API_LIMITS_FIELD(field, ...) uint64_t field;
    API_LIMITS(API_LIMITS_FIELD)
#undef API_LIMITS_FIELD
};

struct api_limit_row {
    const char *name, *help;
    enum api_limit_unit unit;
    uint64_t standard, lowest;
    size_t offset; /* of the field */
};

extern const struct api_limit_row api_limit_rows[];
extern const size_t n_api_limit_rows;

/* Defaults in the place of zeros. */
void api_limits_fill(struct api_limits *limits);

/* "memory=1GiB", "prepare-time=5s", "waiting=64". ERROR_INVALID names what may stand there. */
enum error_code api_limits_set(struct api_limits *limits, const char *assignment,
                               struct error *err);

struct api_limit_text {
    char text[32];
};
/* "512 MiB", "10 s", "1024". */
struct api_limit_text api_limit_text(const struct api_limit_row *row, uint64_t value);

/* An error that says what is too much, the limit's name and its value; returns false. */
bool api_limit_error(struct api_error *err, unsigned status, const struct api_limits *limits,
                     size_t offset, const char *what);
#define API_LIMIT_ERROR(err, status, limits, field, what)                                          \
    api_limit_error(err, status, limits, offsetof(struct api_limits, field), what)
