/* The inside of a session, for its calls. */
#pragma once

#include "grpc/session.h"

struct nghttp2_session;

struct grpc_session {
    struct nghttp2_session *h2;
    struct grpc_door door;
    struct grpc_memory *memory;
    struct grpc_call *calls;
    uint32_t n_calls;
    uint64_t now_ns; /* of the call of this session that is under way */
    bool has_called, is_stopping;
};

void session_call_wakes(struct grpc_call *call); /* it has bytes to send */
void session_call_ended(struct grpc_call *call); /* its status is known */
