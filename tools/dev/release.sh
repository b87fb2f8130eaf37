# ./dev release: what a release consists of. Sourced by ./dev after testing.sh.

release_files=$repo/build/release-files

verb_release() { # [--check] [--twice] [--sign KEY]
  local checks= twice= key=
  while [ $# -gt 0 ]; do
    case $1 in
      --check) checks=yes ;;
      --twice) twice=yes ;;
      --sign) [ $# -gt 1 ] || die "--sign needs a private key of OpenSSH"; key=$2; shift ;;
      *) die "./dev release [--check] [--twice] [--sign KEY]: '$1' is none of them" ;;
    esac
    shift
  done
  release_bundle && package_make || return 1
  cp "$repo"/build/deb/*.deb "$release_files/" || return 1
  local recipe
  for recipe in arch/PKGBUILD homebrew/medley.rb nix/flake.nix rpm/medley.spec; do
    sed "s/@VERSION@/$("$repo/tools/version.sh")/" "packaging/$recipe" \
      >"$release_files/${recipe#*/}" || return 1
    publisher_fill "$release_files/${recipe#*/}"
  done
  (cd "$release_files" && find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' -printf '%P\n' |
    LC_ALL=C sort | xargs sha256sum >SHA256SUMS) || return 1
  [ -z "$key" ] || release_sign "$key"
  [ -z "$twice" ] || release_twice || return 1
  [ -z "$checks" ] || release_check
}

# The time in all archives: the commit's, or that of whoever knows it where git is not there.
release_epoch() {
  [ -n "${SOURCE_DATE_EPOCH:-}" ] || SOURCE_DATE_EPOCH=$(git -C "$repo" log -1 --format=%ct) ||
    die "no git here: SOURCE_DATE_EPOCH must say the time of the sources, in seconds"
  export SOURCE_DATE_EPOCH
}

# The bundle alone, of the version that the tree has now.
release_bundle() {
  env_prepare
  npm_prepare
  release_epoch
  local version configured
  version=$("$repo/tools/version.sh")
  inside python3 tools/check_changelog.py --version "$version" || return 1
  build_targets=(bundle)
  configured=$(inside meson introspect --projectinfo "$repo/build/bundle" 2>/dev/null |
    sed -n 's/.*"version": "\([^"]*\)".*/\1/p') || true
  [ -z "$configured" ] || [ "$configured" = "$version" ] ||
    quietly inside meson setup --reconfigure "$repo/build/bundle" || return 1
  # Without what debuggers read: it names the folder in which each object was compiled, which the
  # compiler's cache may have from another tree, and the build id is a hash of all that is linked.
  ! grep -q 'ARGS = .* -g ' "$repo/build/bundle/build.ninja" 2>/dev/null ||
    rm -rf --one-file-system "$repo/build/bundle"
  build_in bundle -Dbundle=true -Ddebug=false || return 1
  inside python3 tools/release/bundle.py \
    --source "$repo" --build "$repo/build/bundle" --out "$release_files"
}

release_sign() { # KEY
  [ -f "$1" ] || die "there is no key $1"
  extra_binds+=("$(dirname "$(readlink -f "$1")")")
  inside ssh-keygen -Y sign -f "$(readlink -f "$1")" -n medley-release \
    "$release_files/SHA256SUMS" || die "could not sign with $1"
}

# Once more, from a copy of the tree in another folder, without the compiler's cache: the same
# bytes, or what differs.
release_twice() {
  local copy=$repo/build/release-again file status=0
  say "building the release once more in $copy, without a compiler cache (minutes)"
  rm -rf --one-file-system "$copy"
  mkdir -p "$copy"
  git -C "$repo" ls-files -z | tar -c --null -C "$repo" -T - | tar -x -C "$copy" || return 1
  cp -a "$repo/node_modules" "$copy/"
  (
    cd "$copy" && CCACHE_DISABLE=1 MEDLEY_VERSION=$("$repo/tools/version.sh") ./dev release
  ) >"$copy.log" 2>&1 || { tail -n 20 "$copy.log" >&2; return 1; }
  while read -r _ file; do
    cmp "$release_files/$file" "$copy/build/release-files/$file" || status=1
  done <"$release_files/SHA256SUMS"
  if [ $status != 0 ]; then
    say "not the same: look at both with diffoscope; the second is in $copy/build/release-files"
  else
    say "$(wc -l <"$release_files/SHA256SUMS") files, the same bytes when built twice"
    rm -rf --one-file-system "$copy" "$copy.log"
  fi
  return $status
}

# ---- does it run elsewhere? ------------------------------------------------------------------------

# bare_root SUITE: prints the folder of a Debian with nothing but what is essential.
bare_root() {
  local dir=$cache/bare-$1
  if [ ! -d "$dir" ]; then
    root_tools
    say "making a bare Debian $1 root in $dir"
    with_progress "$dir.log" mmdebstrap --variant=minbase --dpkgopt=force-unsafe-io \
      --aptopt='Acquire::Check-Valid-Until "false"' "$1" "$dir.part" ||
      { tail -n 5 "$dir.log" >&2; return 1; }
    mv "$dir.part" "$dir"
    rm -f "$dir.log"
  fi
  printf '%s\n' "$dir"
}

in_bare_root() { # DIR CMD...; the release's files are in /mnt, the network is not there
  local dir=$1
  shift
  bwrap --ro-bind "$dir" / --dev /dev --proc /proc --ro-bind /sys /sys --tmpfs /tmp --tmpfs /root \
    --tmpfs /usr/local --ro-bind "$release_files" /mnt --unshare-pid --unshare-net \
    --die-with-parent --chdir /tmp --clearenv --setenv HOME /root \
    --setenv PATH /usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

# Installs it as a stranger would, and has the bundled model tell the same text everywhere.
release_tells() { # DIR
  in_bare_root "$1" sh -c '
    sh /mnt/install.sh >/tmp/said 2>&1 || { cat /tmp/said >&2; exit 1; }
    demo=$(echo /usr/local/lib/medley/*/share/medley/demo.gguf)
    medley devices >/tmp/devices && grep -q -i cpu /tmp/devices || { cat /tmp/devices >&2; exit 1; }
    medley run "$demo" -p "Tell me a story about a fox." -n 40 --temp 0 --devices cpu'
}

# From the command after the download to the first token, in milliseconds.
release_first_token() { # DIR
  in_bare_root "$1" bash -c '
    begin=$(date +%s%N)
    sh /mnt/install.sh >/dev/null 2>&1
    medley run /usr/local/lib/medley/*/share/medley/demo.gguf -p "Tell me a story about a fox." \
      -n 1 --devices cpu >/dev/null 2>&1 && echo $((($(date +%s%N) - begin) / 1000000))'
}

# A node answers through its API, and ends when it is told to.
release_serves() { # DIR
  in_bare_root "$1" --ro-bind "$repo/tests/release" /srv sh -c '
    sh /mnt/install.sh >/tmp/said 2>&1
    timeout 90 bash /srv/served.sh medley /usr/local/lib/medley/*/share/medley/demo.gguf'
}

release_check() {
  local suite dir text first= status=0
  for suite in trixie testing sid; do
    dir=$(bare_root "$suite") || { say "no root of $suite: not checked"; status=1; continue; }
    if ! text=$(release_tells "$dir" 2>"$release_files/said"); then
      say "Debian $suite: it does not run"
      cat "$release_files/said" >&2
      status=1
      continue
    fi
    [ -n "$first" ] || first=$text
    if ! release_serves "$dir" >"$release_files/said" 2>&1; then
      say "Debian $suite: its API does not answer"
      cat "$release_files/said" >&2
      status=1
    fi
    if [ -n "$text" ] && [ "$text" = "$first" ]; then
      say "Debian $suite: installed, serves, and it tells what the first told"
    else
      say "Debian $suite: it tells another text: $text"
      status=1
    fi
  done
  dir=$(bare_root trixie) && text=$(release_first_token "$dir") &&
    say "$text ms from install.sh's start to the first token (load $(cut -d' ' -f1 /proc/loadavg))"
  dir=$(bare_root bookworm) || { say "no root of bookworm: not checked"; return 1; }
  if in_bare_root "$dir" sh /mnt/install.sh >"$release_files/said" 2>&1 ||
    ! grep -q "has glibc 2.36, and the bundle needs 2.38" "$release_files/said"; then
    say "Debian bookworm: not refused with the reason"
    status=1
  else
    say "Debian bookworm: refused, with the reason"
  fi
  rm -f "$release_files/said"
  return $status
}
