/* Which host a stream comes from, for limits on what one host may have. */
#pragma once

#include "mesh/crowd.h"
#include "mesh/stream.h"

/* The peer's address, without its port. */
struct stream_host stream_host(const struct stream *stream);
