/* Which host a stream comes from, for limits on what one host may have. */
#pragma once

#include "mesh/stream.h"

/* A number for the peer's address, without its port. An IPv6 host has a whole /64. */
uint64_t stream_host(const struct stream *stream);
