#!/usr/bin/env python3
"""Compiles the sources of build/release against another C library, musl: musl.py BUILD INCLUDE
[FILE...], a FILE by its path in src; without one all.

For each file of src/ that BUILD/compile_commands.json names, with the same options, but musl's
headers in place of glibc's. INCLUDE becomes a folder of links to the libraries' headers, which
Debian has for glibc alone: what they declare is the same. Nothing is linked and nothing runs.

Prints room by room how many files compile, and the first error of each that does not. Fails when
that is not what NOT_YET says.
"""
import concurrent.futures
import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys

# Files that do not compile against musl yet: {path in src: why}. It can only shrink.
NOT_YET = {}

# The kernel's headers, and those of the libraries that meson.build names.
PATTERNS = """linux asm asm-generic uv* yyjson.h libwebsockets* lws_config* pcre2.h utf8proc.h raft*
  sqlite3.h protobuf-c avahi-common avahi-core sodium* nghttp2 seccomp*.h zlib.h zconf.h ggml*.h
  png*.h libpng16 jpeglib.h jmorecfg.h jerror.h jconfig.h webp
  gguf.h quickjs* curl""".split()
LEFT_OUT = re.compile(
    r"-I/usr/.*|-MD|-W(error|.*pch)|-fdiagnostics.*|-D_FORTIFY_SOURCE=.*|ccache|cc")
WITH_VALUE = {"-MQ", "-MF", "-o", "-c", "-isystem"}


def link_headers(include):
    """OpenSSL's lie in two folders, one of them the processor's."""
    shutil.rmtree(include, ignore_errors=True)
    (include / "openssl").mkdir(parents=True)
    usr = pathlib.Path("/usr/include")
    folders = [usr, usr / f"{platform.machine()}-linux-gnu"]
    for folder in folders:
        for pattern in PATTERNS:
            for path in folder.glob(pattern):
                if not (include / path.name).exists():
                    (include / path.name).symlink_to(path)
        for path in (folder / "openssl").glob("*.h"):
            (include / "openssl" / path.name).symlink_to(path)
    (include / "sys").mkdir()
    (include / "sys/capability.h").symlink_to(usr / "sys/capability.h")  # libwebsockets' wants it


def command_of(entry, include):
    words, kept = shlex.split(entry["command"]), ["musl-gcc"]
    words = iter(words)
    for word in words:
        if word in WITH_VALUE:
            next(words)
        elif not LEFT_OUT.fullmatch(word):
            kept.append(word)
    return [*kept, "-w", "-O0", "-fsyntax-only", "-isystem", str(include), entry["file"]]


def compile_one(entry, include):
    done = subprocess.run(command_of(entry, include), cwd=entry["directory"], capture_output=True,
                          text=True)
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    return None if done.returncode == 0 else (errors or done.stderr.splitlines() or ["?"])[0]


def main():
    build, include = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    source = build.resolve().parents[1] / "src"
    link_headers(include)
    entries = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = (pathlib.Path(entry["directory"]) / entry["file"]).resolve()
        name = path.is_relative_to(source) and path.relative_to(source).as_posix()
        if name and name in (sys.argv[3:] or [name]):
            entries.setdefault(name, entry)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        said = dict(zip(entries, pool.map(lambda entry: compile_one(entry, include),
                                          entries.values())))
    rooms = {}
    for path, error in said.items():
        rooms.setdefault(path.split("/")[0], []).append(error is None)
    for room, good in sorted(rooms.items()):
        print(f"{room:<14}{sum(good):>5} of {len(good)}")
    failed = {path for path, error in said.items() if error}
    for path in sorted(failed):
        print(f"{path}: {said[path]}{'' if path in NOT_YET else '   (NEW)'}")
    for path in sorted(set(NOT_YET) & set(said) - failed):
        print(f"{path} compiles, or is gone: take it out of NOT_YET in tools/dev/musl.py")
    print(f"musl: {len(said) - len(failed)} of {len(said)} files compile")
    return failed != set(NOT_YET) & set(said) or not said


if __name__ == "__main__":
    sys.exit(main())
