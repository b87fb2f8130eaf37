#!/bin/sh
# Prints Medley's version, as the newest tag says it: v1.2.3 is 1.2.3, and N commits after it
# 1.2.3+N.gHASH. Before the first tag 0.0.0+N.gHASH. Where tracked files differ, "dirty" follows.
#
# MEDLEY_VERSION, if set, is printed instead: a tree without git, by one who knows its version.
# Without both, what `git archive` wrote below; in a tree copied by other means 0.0.0+unknown.
set -eu
archived='$Format:%(describe:tags=true,match=v[0-9]*) %h$'

described() { # as `git describe` writes it: v1.2.3, v1.2.3-N-gHASH
  printf '%s\n' "$1" | sed -e 's/^v//' -e 's/-\([0-9]*\)-g\([0-9a-f]*\)/+\1.g\2/'
}

top=$(cd "$(dirname "$0")/.." && pwd -P)
if [ -n "${MEDLEY_VERSION:-}" ]; then
  printf '%s\n' "$MEDLEY_VERSION"
elif [ "$(git -C "$top" rev-parse --show-toplevel 2>/dev/null)" = "$top" ]; then
  if said=$(git -C "$top" describe --tags --match 'v[0-9]*' 2>/dev/null); then
    version=$(described "$said")
  else
    version=0.0.0+$(git -C "$top" rev-list --count HEAD).g$(git -C "$top" rev-parse --short HEAD)
  fi
  if [ -n "$(git -C "$top" status --porcelain --untracked-files=no)" ]; then
    case $version in *+*) version=$version.dirty ;; *) version=$version+dirty ;; esac
  fi
  printf '%s\n' "$version"
else
  case $archived in
    \$*) echo 0.0.0+unknown ;;
    v*) described "${archived% *}" ;;
    *) echo "0.0.0+g${archived# }" ;;
  esac
fi
