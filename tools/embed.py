#!/usr/bin/env python3
"""Writes files into C: embed.py OUT.c OUT.h NAME=FILE ...

For each pair the header declares `const char NAME[]`, the file's bytes with a NUL after them, and
`const size_t NAME_size`, without that NUL.
"""
import os
import sys

BYTES_A_LINE = 40


def definition(name, data):
    lines = [f'const size_t {name}_size = {len(data)};', f'const char {name}[] = {{']
    for at in range(0, len(data), BYTES_A_LINE):
        # as signed values: char may be signed, and -Wconversion is an error
        values = (str(b - 256 if b > 127 else b) for b in data[at:at + BYTES_A_LINE])
        lines.append('    ' + ', '.join(values) + ',')
    lines.append('    0};')
    return '\n'.join(lines)


def main():
    source_path, header_path, *pairs = sys.argv[1:]
    declarations, definitions = [], []
    for pair in pairs:
        name, path = pair.split('=', 1)
        with open(path, 'rb') as file:
            definitions.append(definition(name, file.read()))
        declarations.append(f'extern const char {name}[];\nextern const size_t {name}_size;')
    with open(header_path, 'w') as file:
        file.write('#pragma once\n\n#include <stddef.h>\n\n' + '\n'.join(declarations) + '\n')
    with open(source_path, 'w') as file:
        file.write(f'#include "{os.path.basename(header_path)}"\n\n' + '\n\n'.join(definitions) + '\n')


main()
