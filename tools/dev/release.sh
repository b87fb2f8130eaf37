# ./dev release: the bundle that runs on other Linux systems. Sourced by ./dev after testing.sh.

release_files=$repo/build/release-files

verb_release() { # [--check] [--sign KEY]
  local checks= key=
  while [ $# -gt 0 ]; do
    case $1 in
      --check) checks=yes ;;
      --sign) [ $# -gt 1 ] || die "--sign needs a private key of OpenSSH"; key=$2; shift ;;
      *) die "./dev release [--check] [--sign KEY]: '$1' is neither" ;;
    esac
    shift
  done
  env_prepare
  npm_prepare
  build_targets=(bundle)
  build_in bundle -Dbundle=true || return 1
  local epoch
  epoch=$(git -C "$repo" log -1 --format=%ct) || die "a release is made from a git checkout"
  inside env SOURCE_DATE_EPOCH="$epoch" python3 tools/release/bundle.py \
    --source "$repo" --build "$repo/build/bundle" --out "$release_files" || return 1
  [ -z "$key" ] || release_sign "$key"
  [ -z "$checks" ] || release_check
}

release_sign() { # KEY
  [ -f "$1" ] || die "there is no key $1"
  extra_binds+=("$(dirname "$(readlink -f "$1")")")
  inside ssh-keygen -Y sign -f "$(readlink -f "$1")" -n medley-release \
    "$release_files/SHA256SUMS" || die "could not sign with $1"
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
