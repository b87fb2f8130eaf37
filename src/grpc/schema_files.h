/* The .proto files that the node has, compiled: what tools/embed_schema.py writes. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct grpc_schema_file {
    const char *name;          /* "medley.proto" */
    const uint8_t *descriptor; /* a FileDescriptorProto */
    size_t size;
    const char *const *symbols; /* all that it defines, with their package; ended by NULL */
};
extern const struct grpc_schema_file grpc_schema_files[]; /* ended by one without a name */
