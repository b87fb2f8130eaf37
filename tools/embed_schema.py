#!/usr/bin/env python3
"""Writes compiled .proto files into C, for server reflection. Part of the build.

    embed_schema.py OUT.c SET...

Each SET is what `protoc --descriptor_set_out` makes of one file without imports. The result
defines `grpc_schema_files` (src/grpc/schema_files.h).
"""
import pathlib
import sys


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at


def texts(data, *numbers):
    """The length-delimited fields of these numbers."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 != 2:
            _, at = varint(data, at)  # a descriptor's other fields are varints
            continue
        size, at = varint(data, at)
        if key >> 3 in numbers:
            yield data[at : at + size]
        at += size


def name_of(data):
    return next(texts(data, 1)).decode()


def symbols(file):
    """FileDescriptorProto: 2 package, 4 messages, 6 services; ServiceDescriptorProto: 2 methods."""
    package = next(texts(file, 2)).decode()
    for message in texts(file, 4):
        yield f"{package}.{name_of(message)}"
    for service in texts(file, 6):
        yield f"{package}.{name_of(service)}"
        for method in texts(service, 2):
            yield f"{package}.{name_of(service)}.{name_of(method)}"


def main():
    out, *sets = sys.argv[1:]
    lines = ['#include "grpc/schema_files.h"', ""]
    rows = []
    for number, path in enumerate(sets):
        (file,) = texts(pathlib.Path(path).read_bytes(), 1)  # FileDescriptorSet: 1 file
        lines += [f"static const uint8_t file_{number}[] = {{"]
        lines += ["    " + "".join(f"{byte}," for byte in file[at : at + 24]) for at in range(0, len(file), 24)]
        lines += ["};", f"static const char *const symbols_{number}[] = {{"]
        lines += [f'    "{symbol}",' for symbol in symbols(file)] + ["    0,", "};"]
        rows.append(f'    {{"{name_of(file)}", file_{number}, sizeof file_{number}, symbols_{number}}},')
    lines += ["const struct grpc_schema_file grpc_schema_files[] = {", *rows, "    {0},", "};", ""]
    pathlib.Path(out).write_text("\n".join(lines))


if __name__ == "__main__":
    main()
