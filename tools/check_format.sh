#!/bin/sh
# Fails, with their names, when C files are not as clang-format would write them. Run in the
# repository.
set -u
bad=$(find src tools tests bench include examples -name '*.[ch]' -print0 |
  xargs -0 clang-format --dry-run 2>&1 |
  sed -n 's/^\([^:]*\):[0-9:]* warning: .*clang-formatted.*/\1/p' | sort | uniq -c)
[ -z "$bad" ] && exit 0
printf 'places, file (./dev format mends them):\n%s\n' "$bad"
exit 1
