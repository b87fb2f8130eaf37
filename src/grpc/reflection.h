/* gRPC's server reflection, v1 and v1alpha, which differ in their names only
 * (https://grpc.io/docs/guides/reflection/): what the node has, for clients without its .proto.
 * Pure; fuzzed. */
#pragma once

#include "base/buffer.h"
#include "grpc/status.h"

bool grpc_reflection_is(const char *path); /* "/grpc.reflection.v1.ServerReflection/…" */
/* The answer to a request, framed and appended. False: it is no such request, *status says so. */
bool grpc_reflection_answer(const void *message, size_t size, struct buffer *out,
                            struct grpc_status *status);
