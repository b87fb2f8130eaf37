#!/bin/sh
# Installs into an empty folder, compiles a program against what is there alone, and runs it.
# installed.sh BUILD PROGRAM.c LIBDIR SANITIZERS
set -eu
build=$1 program=$2 libdir=$3 sanitizers=$4
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

meson install -C "$build" --no-rebuild --quiet --destdir "$root"
export PKG_CONFIG_SYSROOT_DIR="$root"
export PKG_CONFIG_LIBDIR="$root$libdir/pkgconfig:$(pkg-config --variable pc_path pkg-config)"
flags=
[ "$sanitizers" = none ] || flags=-fsanitize=$sanitizers
"${CC:-cc}" -std=gnu11 -Wall -Wextra -Wstrict-prototypes -Werror $flags "$program" \
  -o "$root/program" $(pkg-config --cflags --libs medley)
LD_LIBRARY_PATH=$root$libdir "$root/program"

# A library for others must not meddle with their names.
stray=$(nm -D --defined-only "$root$libdir/libmedley.so" | awk '{print $3}' |
  grep -v '^medley_' || true)
[ -z "$stray" ] || { echo "libmedley.so exports: $stray"; exit 1; }
