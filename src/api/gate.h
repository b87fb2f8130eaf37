/* The gate: what the head of a request must be before anything is done for it. Pure.
 *
 * DNS rebinding: the owner of a name can let it point to this machine, and a browser then takes
 * their web page and this server for one origin. What such a request cannot hide is the name, in
 * Host. So a request is taken only under a name that is this machine's: a loopback name, the
 * address at which the connection arrived, or one that was allowed with gate_allow(), also under a
 * suffix of local networks ("tower.local", served_names.h). An Origin must be that same host, or
 * the one that `--cors` names; where it comes with a Host that is not on the list, it proves
 * nothing.
 *
 * Lifetime: gate_allow() copies names into the caller's memory; nothing to free. */
#pragma once

#include "api/errors.h"
#include "base/error.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

enum { GATE_NAME_MAX = 256 }; /* with the NUL: a name of the DNS has at most 253 bytes */

struct gate {
    char names[LIMIT_API_HOSTS][GATE_NAME_MAX];
    uint32_t n_names;
    const char *cors_origin; /* the owner's; "*": any; NULL: none */
};

/* A name without a port, or an address, with or without brackets. ERROR_INVALID: it is neither, or
 * there are LIMIT_API_HOSTS already. A name that is on the list is not added again. */
enum error_code gate_allow(struct gate *gate, const char *name, struct error *err);

/* What a head says. Texts are NULL where there is no such header, and "" where it is longer than
 * was read. */
struct gate_head {
    const char *host, *origin, *length, *encoding;
    const char *arrived; /* the address at which the connection arrived, as getnameinfo() has it */
    uint32_t n_hosts;    /* headers of that name */
    bool http_1_0;
    bool websocket;    /* asks for one */
    bool body_assumed; /* the method has a body */
};

struct gate_body {
    uint64_t expected;
    bool length_given;
    bool chunked; /* then `expected` is unknown */
};

/* False: `err` says what is wrong and what to do. */
bool gate_check(const struct gate *gate, const struct gate_head *head, struct gate_body *body,
                struct api_error *err);
