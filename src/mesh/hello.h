/* The first message on each channel, both ways, and the refusal that may come instead. Pure.
 *
 * Versions: nodes of the same major version whose minor ones are at most one apart talk; the lower
 * of the two minor versions says what they may use. A field, a frame type or a flag more is a new
 * minor version and is ignored by an older node; what an older node cannot ignore is a new major
 * version.
 *
 * Texts from the wire are cut to their places, and what is not printable ASCII becomes '?'. Unknown
 * fields are skipped. ERROR_INVALID: the bytes are not such a message. */
#pragma once

#include "base/error.h"
#include "base/limits.h"

#include <stddef.h>
#include <stdint.h>

enum { LINK_MAJOR = 1, LINK_MINOR = 2, LINK_MINORS_APART = 1 };

struct link_version {
    uint32_t major, minor;
};

struct hello {
    struct link_version version;
    uint32_t channel;    /* 0 is control, from 1 on data */
    uint32_t n_channels; /* of the link, control included: 2 to LIMIT_LINK_CHANNELS */
    uint64_t session;    /* chosen by who dialled; the same on all channels of a link */
    uint64_t boot;       /* chosen by each process when it starts */
    char software[64];
    uint32_t n_greeting;
    uint8_t greeting[LIMIT_GREETING_BYTES]; /* from the room above */
};

enum refusal_reason {
    REFUSAL_UNKNOWN,
    REFUSAL_VERSION,
    REFUSAL_DUPLICATE,
    REFUSAL_BUSY,
    REFUSAL_NOT_MEMBER,
    REFUSAL_NO_SUCH_LINK,
    REFUSAL_STOPPING,
};

struct refusal {
    enum refusal_reason reason; /* one that this version does not know is REFUSAL_UNKNOWN */
    char text[256];
    struct link_version version; /* of who refuses */
};

/* At most LIMIT_HELLO_BYTES. Returns how many bytes were written. */
size_t hello_write(const struct hello *hello, uint8_t bytes[static LIMIT_HELLO_BYTES]);
enum error_code hello_read(const uint8_t *bytes, size_t size, struct hello *hello,
                           struct error *err);

size_t refusal_write(const struct refusal *refusal, uint8_t bytes[static LIMIT_HELLO_BYTES]);
enum error_code refusal_read(const uint8_t *bytes, size_t size, struct refusal *refusal,
                             struct error *err);

/* What both may use. ERROR_UNSUPPORTED: the majors differ, or the minors by more than one; the text
 * says which end to update. */
enum error_code version_agree(struct link_version ours, struct link_version theirs,
                              struct link_version *agreed, struct error *err);
