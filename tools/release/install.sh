#!/bin/sh
# Installs a bundle of Medley, and nothing else: no service, no setting, no package.
#
#   sh install.sh [--prefix FOLDER] [--signers FILE] [BUNDLE.tar.gz]
#   sh install.sh --remove [--prefix FOLDER]
#
# BUNDLE is by default the one beside this script; in an unpacked bundle, that bundle. It goes to
# PREFIX/lib/medley/VERSION, and PREFIX/bin/medley becomes a link to it. The manual page and what
# shells complete go to PREFIX/share. PREFIX is ~/.local, or for root /usr/local.
set -eu

glibc_floor=2.38
pages="man/man1/medley.1 bash-completion/completions/medley zsh/site-functions/_medley
  fish/vendor_completions.d/medley.fish"
here=$(cd "$(dirname "$0")" && pwd -P)

say() { printf 'medley: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; }

# ---- what this machine is ----------------------------------------------------------------------

is_at_least() { # VERSION FLOOR
  [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]
}

check_machine() { # ARCH of the bundle
  local_arch=$(uname -m)
  [ "$(uname -s)" = Linux ] || die "this bundle is for Linux; this is $(uname -s)"
  [ "$1" = "$local_arch" ] || die "this bundle is for $1; this machine is $local_arch"
  glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed -n 's/^glibc //p')
  [ -n "$glibc" ] ||
    die "this system's C library is not glibc (musl?); the bundle needs glibc $glibc_floor." \
      "Build it in its own Debian root instead: ./dev in Medley's source tree"
  is_at_least "$glibc" "$glibc_floor" ||
    die "this system has glibc $glibc, and the bundle needs $glibc_floor (Debian 13, Ubuntu 24.04," \
      "Fedora 39 or later). On this one ./dev in Medley's source tree makes a Debian 13 root of its" \
      "own and runs it there"
}

# ---- what was downloaded ------------------------------------------------------------------------

check_sum() { # FILE; SHA256SUMS lies beside it
  sums=$(dirname "$1")/SHA256SUMS
  [ -f "$sums" ] || die "SHA256SUMS is not beside $(basename "$1"): download it too"
  wanted=$(sed -n "s/^\([0-9a-f]\{64\}\)  $(basename "$1")\$/\1/p" "$sums")
  [ -n "$wanted" ] || die "SHA256SUMS does not name $(basename "$1")"
  found=$(sha256sum <"$1" | cut -d' ' -f1)
  [ "$wanted" = "$found" ] ||
    die "$(basename "$1") is not what SHA256SUMS says: it is damaged, or not Medley's." \
      "Nothing was installed"
}

check_signature() { # SUMS [SIGNERS]
  if [ -z "$2" ]; then
    say "only the checksum was checked; --signers FILE checks who made it"
    return
  fi
  command -v ssh-keygen >/dev/null || die "--signers needs ssh-keygen (package openssh-client)"
  [ -f "$1.sig" ] || die "$1.sig is missing: this release is not signed"
  signer=$(ssh-keygen -Y find-principals -f "$2" -s "$1.sig" 2>/dev/null) ||
    die "nobody whom $2 names signed $1. Nothing was installed"
  ssh-keygen -Y verify -f "$2" -I "$signer" -n medley-release -s "$1.sig" <"$1" >/dev/null 2>&1 ||
    die "the signature of $1 is not good. Nothing was installed"
  say "signed by $signer"
}

# ---- installing ----------------------------------------------------------------------------------

newest_cxx() { # FILE -> the newest version of its symbols
  grep -ao 'GLIBCXX_3\.4\.[0-9]*' "$1" | sort -uV | tail -n 1
}

# A GPU's driver may need a newer C++ library than the bundle's, and one process has one of them.
prefer_newer_cxx() { # FOLDER of the bundle's libraries
  own=$1/libstdc++.so.6
  theirs=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null |
    sed -n 's/.*libstdc++\.so\.6 (.*'"$(arch_mark)"'.*=> //p' | head -n 1)
  [ -f "$own" ] && [ -n "$theirs" ] || return 0
  is_at_least "$(newest_cxx "$theirs")" "$(newest_cxx "$own")" || return 0
  rm -f "$own" "$1/libgcc_s.so.1"
}

arch_mark() { # as ldconfig writes it
  case $(uname -m) in x86_64) echo x86-64 ;; *) uname -m | sed 's/arm64/aarch64/' ;; esac
}

unpack() { # ARCHIVE -> prints the folder
  work=$(mktemp -d "$prefix/lib/medley/.new.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  tar -xzf "$1" -C "$work" --no-same-owner
  bundle=$(echo "$work"/medley-*)
}

install_bundle() { # FOLDER
  version=$(basename "$1" | sed 's/^medley-\(.*\)-linux-.*/\1/')
  target=$prefix/lib/medley/$version
  rm -rf "$prefix/lib/medley/.old.$version"
  [ ! -e "$target" ] || mv "$target" "$prefix/lib/medley/.old.$version"
  mv "$1" "$target"
  rm -rf "$prefix/lib/medley/.old.$version"
  prefer_newer_cxx "$target/lib/medley"
  mkdir -p "$prefix/bin"
  ln -sfn "../lib/medley/$version/bin/medley" "$prefix/bin/medley"
  for page in $pages; do
    mkdir -p "$prefix/share/$(dirname "$page")"
    [ ! -f "$target/share/$page" ] || cp "$target/share/$page" "$prefix/share/$page"
  done
  "$prefix/bin/medley" --version >/dev/null || die "it is installed, but does not start: see above"
  say "$("$prefix/bin/medley" --version) is installed: $prefix/bin/medley"
  case :$PATH: in *":$prefix/bin:"*) ;; *) say "note: $prefix/bin is not on your PATH" ;; esac
  say "try: $prefix/bin/medley run $target/share/medley/demo.gguf -p 'Tell me a story.'"
}

remove() {
  [ -d "$prefix/lib/medley" ] || die "nothing is installed in $prefix"
  rm -rf "$prefix/lib/medley"
  [ ! -L "$prefix/bin/medley" ] || rm "$prefix/bin/medley"
  for page in $pages; do rm -f "$prefix/share/$page"; done
  say "removed from $prefix; models and settings in your state folder stay"
}

# ---- the command line ------------------------------------------------------------------------------

prefix= signers= bundle= removes=
while [ $# -gt 0 ]; do
  case $1 in
    --prefix | --signers)
      [ $# -gt 1 ] || die "$1 needs a value"
      if [ "$1" = --prefix ]; then prefix=$2; else signers=$2; fi
      shift ;;
    --remove) removes=yes ;;
    -h | --help) usage; exit 0 ;;
    -*) die "no option '$1': sh install.sh --help lists them" ;;
    *) bundle=$1 ;;
  esac
  shift
done
if [ -z "$prefix" ]; then
  if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=$HOME/.local; fi
fi
if [ -n "$removes" ]; then remove; exit 0; fi
mkdir -p "$prefix/lib/medley" || die "$prefix cannot be written: --prefix names another folder"
prefix=$(cd "$prefix" && pwd -P)

if [ -z "$bundle" ] && [ -x "$here/bin/medley" ]; then
  check_machine "$(basename "$here" | sed 's/.*-linux-//')"
  work=$(mktemp -d "$prefix/lib/medley/.new.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  cp -R "$here" "$work/"
  install_bundle "$work/$(basename "$here")"
  exit 0
fi
[ -n "$bundle" ] || bundle=$(ls "$here"/medley-*-linux-"$(uname -m)".tar.gz 2>/dev/null | tail -n 1)
[ -n "$bundle" ] || die "no bundle for $(uname -m) beside this script; name one"
[ -f "$bundle" ] || die "there is no file $bundle"
check_machine "$(basename "$bundle" .tar.gz | sed 's/.*-linux-//')"
check_sum "$bundle"
check_signature "$(dirname "$bundle")/SHA256SUMS" "$signers"
unpack "$bundle"
install_bundle "$bundle"
