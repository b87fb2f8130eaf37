# ./dev release: what a release consists of. Sourced by ./dev after testing.sh.

release_arch=$(uname -m) # whose it is
release_build=bundle     # the folder in build/
release_files=$repo/build/release-files
release_question=(run models/demo.gguf -p "Tell me a story about a fox." -n 40 --temp 0
  --devices cpu)
release_words= # what the bundled model must tell to that; empty: what it tells first

verb_release() { # [--check] [--twice] [--sign KEY] [--arch ARCH]
  local checks= twice= key=
  while [ $# -gt 0 ]; do
    case $1 in
      --check) checks=yes ;;
      --twice) twice=yes ;;
      --sign) [ $# -gt 1 ] || die "--sign needs a private key of OpenSSH"; key=$2; shift ;;
      --arch)
        [ $# -gt 1 ] || die "--arch needs a processor: x86_64 or aarch64"
        release_arch=$2
        shift ;;
      *) die "./dev release [--check] [--twice] [--sign KEY] [--arch ARCH]: '$1' is none of them" ;;
    esac
    shift
  done
  release_is_native || release_cross $checks
  release_bundle && package_make || return 1
  cp "$package_files"/*.deb "$release_files/" || return 1
  release_recipes || return 1
  (cd "$release_files" && find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' -printf '%P\n' |
    LC_ALL=C sort | xargs sha256sum >SHA256SUMS) || return 1
  [ -z "$key" ] || release_sign "$key"
  [ -z "$twice" ] || release_twice || return 1
  [ -z "$checks" ] || release_check
}

release_is_native() { [ "$release_arch" = "$(uname -m)" ]; }

# For another processor: built by a cross compiler, its programs run by an emulator.
release_cross() { # [yes: it will be checked against this processor]
  [ "$release_arch" = aarch64 ] && [ "$(uname -m)" = x86_64 ] ||
    die "a release for $release_arch cannot be made on $(uname -m): for aarch64 on x86_64 alone"
  if [ -n "${1:-}" ]; then
    build_targets=(src/cli/medley)
    build_release || return 1
    release_words=$(inside build/release/src/cli/medley "${release_question[@]}" 2>/dev/null) ||
      die "this processor's own medley failed"
  fi
  release_build=bundle-$release_arch
  release_files=$repo/build/release-files-$release_arch
  package_files=$repo/build/deb-$release_arch
  arm_enter "$repo/tools/arm-release-packages.txt"
}

release_run() { # CMD...: a program of the release, on whatever starts it here
  if release_is_native; then inside "$@"; else inside bash tools/dev/arm_run.sh "$@"; fi
}

# The time in all archives: the commit's, or that of whoever knows it where git is not there.
release_epoch() {
  [ -n "${SOURCE_DATE_EPOCH:-}" ] || SOURCE_DATE_EPOCH=$(git -C "$repo" log -1 --format=%ct) ||
    die "no git here: SOURCE_DATE_EPOCH must say the time of the sources, in seconds"
  export SOURCE_DATE_EPOCH
}

# The bundle alone, of the version that the tree has now.
release_bundle() {
  local cross=()
  if release_is_native; then env_prepare; else cross=(--cross-file tools/dev/aarch64.ini); fi
  npm_prepare
  release_epoch
  local version configured
  version=$("$repo/tools/version.sh")
  inside python3 tools/check_changelog.py --version "$version" || return 1
  build_targets=(bundle)
  configured=$(inside meson introspect --projectinfo "$repo/build/$release_build" 2>/dev/null |
    sed -n 's/.*"version": "\([^"]*\)".*/\1/p') || true
  [ -z "$configured" ] || [ "$configured" = "$version" ] ||
    quietly inside meson setup --reconfigure "$repo/build/$release_build" || return 1
  # Without what debuggers read: it names the folder in which each object was compiled, which the
  # compiler's cache may have from another tree, and the build id is a hash of all that is linked.
  ! grep -q 'ARGS = .* -g ' "$repo/build/$release_build/build.ninja" 2>/dev/null ||
    rm -rf --one-file-system "$repo/build/$release_build"
  build_in "$release_build" -Dbundle=true -Ddebug=false "${cross[@]}" || return 1
  release_run python3 tools/release/bundle.py --arch "$release_arch" \
    --source "$repo" --build "$repo/build/$release_build" --out "$release_files"
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
    cd "$copy" && CCACHE_DISABLE=1 MEDLEY_VERSION=$("$repo/tools/version.sh") \
      ./dev release --arch "$release_arch"
  ) >"$copy.log" 2>&1 || { tail -n 20 "$copy.log" >&2; return 1; }
  while read -r _ file; do
    cmp "$release_files/$file" "$copy/build/${release_files##*/}/$file" || status=1
  done <"$release_files/SHA256SUMS"
  if [ $status != 0 ]; then
    say "not the same: look with diffoscope; the second is in $copy/build/${release_files##*/}"
  else
    say "$(wc -l <"$release_files/SHA256SUMS") files, the same bytes when built twice"
    rm -rf --one-file-system "$copy" "$copy.log"
  fi
  return $status
}

# ---- does it run elsewhere? ------------------------------------------------------------------------

# foreign_run CMD...: runs CMD outside of the root, where that processor's programs start, too; as
# root of a user namespace that has all users, as packages need.
foreign_run() {
  ARM_RUN_EMULATOR=$root/usr/bin/qemu-aarch64 python3 "$repo/tools/dev/all_users.py" \
    bash "$repo/tools/dev/arm_run.sh" "$@"
}

# Debian 13 for another processor. Without root its files as they are unpacked, none of its scripts
# run: enough for a bundle, not for a package.
bare_foreign_root() {
  local dir=$cache/bare-trixie-$release_arch way=(foreign_run mmdebstrap --mode=root)
  local options=(--variant=minbase --skip=check/qemu --dpkgopt=force-unsafe-io)
  if [ "$(id -u)" != 0 ]; then
    dir=$dir-unpacked way=(mmdebstrap) options=(--variant=extract '--include=?essential')
  fi
  if [ ! -d "$dir" ]; then
    root_tools
    say "making a bare Debian 13 root for $release_arch in $dir"
    rm -rf --one-file-system "$dir.part"
    with_progress "$dir.log" "${way[@]}" "${options[@]}" --architectures=arm64 \
      --aptopt='Acquire::Check-Valid-Until "false"' trixie "$dir.part" ||
      { tail -n 5 "$dir.log" >&2; return 1; }
    mkdir -p "$dir.part"/{usr/local,root,mnt,srv} # which scripts would make
    mv "$dir.part" "$dir"
    rm -f "$dir.log"
  fi
  printf '%s\n' "$dir"
}

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
  local dir=$1 way=() processes=(--proc /proc --unshare-pid)
  shift
  # A user namespace within another may not mount /proc anew.
  release_is_native || { way=(inside bash tools/dev/arm_run.sh) && processes=(--bind /proc /proc); }
  "${way[@]}" bwrap --ro-bind "$dir" / --dev /dev "${processes[@]}" --ro-bind /sys /sys \
    --tmpfs /tmp --tmpfs /root --tmpfs /usr/local --ro-bind "$release_files" /mnt --unshare-net \
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

release_check_in() { # ROOT NAME
  local text
  if ! text=$(release_tells "$1" 2>"$release_files/said"); then
    say "$2: it does not run"
    cat "$release_files/said" >&2
    return 1
  fi
  if ! release_serves "$1" >"$release_files/said" 2>&1; then
    say "$2: its API does not answer"
    cat "$release_files/said" >&2
    return 1
  fi
  [ -n "$release_words" ] || release_words=$text
  if [ -z "$text" ] || [ "$text" != "$release_words" ]; then
    say "$2: it tells another text: $text"
    return 1
  fi
  say "$2: installed, serves, and tells the same text"
}

release_check_foreign() {
  local dir status=0
  dir=$(bare_foreign_root) || return 1
  release_check_in "$dir" "Debian 13 for $release_arch, emulated" || status=1
  package_lintian "$root" || status=1
  if [ "$(id -u)" = 0 ]; then package_try || status=1
  else say "the package is not installed: that needs root"; fi
  rm -f "$release_files/said"
  return $status
}

release_check() {
  local suite dir text status=0
  if ! release_is_native; then release_check_foreign; return; fi
  for suite in trixie testing sid; do
    dir=$(bare_root "$suite") || { say "no root of $suite: not checked"; status=1; continue; }
    release_check_in "$dir" "Debian $suite" || status=1
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
