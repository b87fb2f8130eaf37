# What the checks of other systems' packages share. Sourced by rpm.sh and arch.sh, which run as
# root, in mounts of their own (./dev recipe-check), with FILES (a release), WORK and WORDS: what
# the bundled model must tell. WORK/root is a bare Debian 13, which they may spoil.
set -eu
here=$(dirname "$(readlink -f "$0")")
files=$1
work=$2
words=$3
root=$work/root
flaw() { printf 'recipe-check: %s\n' "$*" >&2; exit 1; }

loudly() { # CMD...: shows what it said only if it fails
  "$@" >"$work/said" 2>&1 || { tail -n 30 "$work/said" >&2; flaw "failed: $*"; }
}

root_mount() {
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount --bind "$here/.." "$root/srv"
  mount -t tmpfs -o mode=1777 tmp "$root/tmp"
}

in_root() {
  chroot "$root" env -i HOME=/tmp PATH=/usr/bin:/bin "$@"
}

# As its user would: devices, the same text as elsewhere, a node that answers.
root_use() { # MODEL
  in_root medley devices >"$work/said" && grep -qi cpu "$work/said" || flaw "no processor was found"
  [ "$(in_root medley run "$1" -p "Tell me a story about a fox." -n 40 --temp 0 --devices cpu \
    2>/dev/null)" = "$words" ] || flaw "the bundled model tells another text"
  in_root timeout 120 bash /srv/served.sh medley "$1" 18080 >"$work/said" 2>&1 || {
    cat "$work/said" >&2
    flaw "its API does not answer"
  }
}

root_is_empty() {
  left=$(find "$root" -xdev -iname '*medley*' | head)
  [ -z "$left" ] || flaw "removing left: $left"
}
