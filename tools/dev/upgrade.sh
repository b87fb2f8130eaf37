# ./dev upgrade-check: a running cluster is upgraded by package. Sourced by ./dev after package.sh.

# ./dev upgrade-check [TAG|COMMIT]: from that one's package; without a name from the newest
# release's. Before the first release from this tree's own, under a lower version number.
verb_upgrade_check() {
  [ "$(id -u)" = 0 ] || die "upgrade-check needs root: it makes namespaces and mounts"
  local work=$repo/build/upgrade from=${1:-} status=0
  [ -n "$from" ] || from=$(git -C "$repo" describe --tags --match 'v[0-9]*' --abbrev=0 HEAD^ \
    2>/dev/null) || from=
  verb_package_deb || return 1
  rm -rf --one-file-system "$work"
  mkdir -p "$work/old" "$work/new"
  cp "$repo"/build/deb/medley_*.deb "$work/new/"
  if [ -n "$from" ]; then upgrade_package_of "$from" "$work/old"
  else upgrade_package_lowered "$work"; fi || return 1
  upgrade_root "$work" || return 1
  say "two machines with $(basename "$work"/old/*.deb .deb) are upgraded to" \
    "$(basename "$work"/new/*.deb .deb)"
  unshare --mount --mount-proc --pid --fork --net --kill-child --propagation private \
    python3 "$repo/tests/release/upgrade.py" "$work/root" "$repo" "$work" \
    "build/upgrade/old/$(basename "$work"/old/*.deb)" \
    "build/upgrade/new/$(basename "$work"/new/*.deb)" </dev/null || status=1
  rm -rf --one-file-system "$work/root"
  return $status
}

# Built from that commit's own sources, by its own ./dev.
upgrade_package_of() { # COMMIT FOLDER
  local commit tree number
  commit=$(git -C "$repo" rev-parse --verify --quiet "$1^{commit}") || die "there is no commit '$1'"
  tree=$repo/build/previous/$commit
  if [ ! -f "$tree/made" ]; then
    say "building the package of $1 (minutes)"
    rm -rf --one-file-system "$tree"
    mkdir -p "$tree"
    git -C "$repo" archive "$commit" | tar -x -C "$tree"
    # A release's number is its own; before the first one all commits are counted.
    number=$(git -C "$repo" describe --tags --match 'v[0-9]*' "$commit" 2>/dev/null |
      sed -e 's/^v//' -e 's/-\([0-9]*\)-g/+\1.g/')
    [ -n "$number" ] ||
      number=0.0.0+$(git -C "$repo" rev-list --count "$commit").g$(git rev-parse --short "$commit")
    (
      cd "$tree"
      SOURCE_DATE_EPOCH=$(git -C "$repo" log -1 --format=%ct "$commit")
      export SOURCE_DATE_EPOCH MEDLEY_VERSION="$number" MEDLEY_DEB_VERSION="$number"
      ./dev package-deb
    ) || return 1
    touch "$tree/made"
  fi
  cp "$tree"/build/deb/medley_*.deb "$2/"
}

# This tree's package under a lower number: the same files.
upgrade_package_lowered() { # WORK
  say "there is no release before this one: the older package is this one under a lower number"
  root_enter "$(root_for trixie "$repo/tools/deb-packages.txt")" sh -ec 'cd "$1"
    dpkg-deb -R new/*.deb files
    sed -i "s/^Version: .*/Version: 0.0.0~lower/" files/DEBIAN/control
    dpkg-deb -Zgzip -z1 -b files old/medley_0.0.0~lower.deb >/dev/null
    rm -rf files' sh "$1"
}

# WORK/root: a bare Debian 13 with systemd and the older package.
upgrade_root() { # WORK
  local bare
  bare=$(bare_root trixie) || return 1
  say "installing the older package and systemd in a bare Debian 13"
  cp -a "$bare" "$1/root"
  quietly bwrap --bind "$1/root" / --dev /dev --proc /proc --ro-bind /sys /sys --perms 1777 \
    --tmpfs /tmp --ro-bind "$1/old" /mnt --ro-bind /etc/resolv.conf /etc/resolv.conf \
    --unshare-pid --die-with-parent --chdir / --cap-add ALL --clearenv --setenv HOME /root \
    --setenv PATH /usr/sbin:/usr/bin:/sbin:/bin --setenv DEBIAN_FRONTEND noninteractive \
    sh -ec 'apt="apt-get -qq -y -o APT::Sandbox::User=root -o Acquire::Check-Valid-Until=false"
      $apt update
      $apt install --no-install-recommends systemd systemd-sysv iproute2 /mnt/*.deb'
}
