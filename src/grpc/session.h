/* A connection of HTTP/2 (RFC 9113) that carries calls of gRPC: bytes in, bytes out. nghttp2 speaks
 * the protocol; no socket and no clock is touched here.
 *
 * What strangers may take: GRPC_CALLS_MAX calls at once, GRPC_HEADER_LIST_MAX bytes of headers of
 * each, streams that are reset only so often (nghttp2's limit), and of `memory` what is free. A
 * call whose caller takes nothing for GRPC_STALL_NS is reset.
 *
 * Lifetime: new; receive, send and tick; free, which ends all calls. On one thread. */
#pragma once

#include "grpc/call.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GRPC_CALLS_MAX = 100,
    GRPC_HEADER_LIST_MAX = 16 * 1024,
};
#define GRPC_STALL_NS (UINT64_C(30) * 1000000000)

/* The door and the memory are shared, and must outlive it. NULL: no memory. */
struct grpc_session *grpc_session_new(const struct grpc_door *door, struct grpc_memory *memory,
                                      uint64_t now_ns);
void grpc_session_free(struct grpc_session *session);

/* False: the connection is over. */
bool grpc_session_receive(struct grpc_session *session, const uint8_t *bytes, size_t size,
                          uint64_t now_ns);
/* What is to be sent next, good until the next call of this; 0: nothing now. */
size_t grpc_session_send(struct grpc_session *session, const uint8_t **bytes, uint64_t now_ns);
/* Nothing more will be sent or is wanted. */
bool grpc_session_is_over(const struct grpc_session *session);
/* Deadlines that have passed. */
void grpc_session_tick(struct grpc_session *session, uint64_t now_ns);
/* When it is to be called next; UINT64_MAX: not before something else happens. */
uint64_t grpc_session_next_ns(const struct grpc_session *session, uint64_t now_ns);
/* No calls are begun any more; those under way go on. */
void grpc_session_stop(struct grpc_session *session);
uint32_t grpc_session_n_calls(const struct grpc_session *session);
bool grpc_session_has_called(const struct grpc_session *session); /* there was a call ever */
