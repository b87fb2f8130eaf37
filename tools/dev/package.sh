# ./dev package-deb and ./dev package-check: a package of Debian from what ./dev release has built.
# Sourced by ./dev after release.sh.

package_files=$repo/build/deb # what release_cross puts another folder in place of

publisher() { # maintainer|homepage: what packaging/publisher says
  sed -n "s/^$1=//p" "$repo/packaging/publisher"
}

# Writes who publishes it into files of packages; without a home page its lines go.
publisher_fill() { # FILE...
  local home line="/@HOMEPAGE@/d"
  home=$(publisher homepage)
  [ -z "$home" ] || line="s|^@HOMEPAGE@$|Homepage: $home|; s|@HOMEPAGE@|$home|"
  sed -i -e "s|@MAINTAINER@|$(publisher maintainer)|" -e "$line" "$@"
}

# package_units MEDLEY FOLDER: the units that the program itself writes, for where a package has it.
package_units() {
  mkdir -p "$2"
  local whole program
  program=$(readlink -f "$1")
  whole=$(release_run "$1" service unit | sed -e "s#$program#/usr/bin/medley#" \
    -e '/^SupplementaryGroups=/d' \
    -e 's/^AmbientCapabilities=.*/&\nSupplementaryGroups=render video/')
  printf '%s\n' "$whole" | sed '/^# medley.socket:/,$d' >"$2/medley.service"
  printf '%s\n' "$whole" | sed -n '/^# medley.socket:/,$p' | sed 1d >"$2/medley.socket"
  release_run "$1" service unit --user | sed "s#$program#/usr/bin/medley#" >"$2/user.service"
  grep -q '^ExecStart="/usr/bin/medley"' "$2/medley.service" &&
    grep -q '^ListenStream=' "$2/medley.socket"
}

verb_package_deb() {
  release_bundle && package_make
}

# The packages whose libraries are in the bundle, for what the package depends on.
package_libraries() {
  inside python3 - "$release_files"/medley-*.spdx.json <<'PY'
import json, sys
for package in json.load(open(sys.argv[1]))["packages"]:
    if package["name"] != "medley":
        backport = "~bpo13" in package["versionInfo"]
        print(package["name"] + ("/trixie-backports" if backport else ""))
PY
}

# The root with Debian's tools and those libraries; that of another processor has both already.
package_root() {
  local list=$repo/build/deb-libraries.txt
  if ! release_is_native; then printf '%s\n' "$root"; return; fi
  package_libraries >"$list" && root_for trixie "$repo/tools/deb-packages.txt" "$list"
}

package_lintian() { # DEB_ROOT
  say "lintian"
  (
    cd "$package_files"
    root_enter "$1" sh -c 'lintian --fail-on error,warning --allow-root --info *.deb'
  )
}

# From the bundle that is there.
package_make() {
  local bundle work version deb_root
  local -A debian_arch=([x86_64]=amd64 [aarch64]=arm64)
  bundle=$(echo "$release_files"/medley-*-linux-"$release_arch")
  version=$(basename "$bundle" | sed 's/^medley-\(.*\)-linux-.*/\1/')
  deb_root=$(package_root) || return 1
  work=$package_files/medley-$version
  rm -rf --one-file-system "$package_files"
  mkdir -p "$work"
  cp -R "$repo/packaging/debian" "$work/debian"
  publisher_fill "$work/debian/control" "$work/debian/org.medley.Medley.metainfo.xml"
  cp -R "$bundle" "$work/bundle"
  package_units "$bundle/bin/medley" "$work/units" || die "the units of \`medley service\` changed"
  {
    printf 'medley (%s) unstable; urgency=medium\n\n' "${MEDLEY_DEB_VERSION:-$version}"
    printf '  * The release %s, packed from its bundle.\n\n' "$version"
    printf ' -- %s  %s\n' "$(publisher maintainer)" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")"
  } >"$work/debian/changelog"
  (
    cd "$work"
    root_enter "$deb_root" dpkg-buildpackage -b -us -uc -d -a "${debian_arch[$release_arch]}"
  ) >"$package_files/log" 2>&1 || { tail -n 30 "$package_files/log" >&2; return 1; }
  ls -l "$package_files"/*.deb >&2
}

verb_package_check() {
  local deb_root status=0
  verb_package_deb || return 1
  deb_root=$(package_root) || return 1
  package_lintian "$deb_root" || status=1
  package_try || status=1
  package_piuparts || status=1
  return $status
}

# Sets release_words, what the bundled model must tell: what it tells where the bundle was built.
package_words() {
  local bundle
  bundle=$(echo "$release_files"/medley-*-linux-"$release_arch")
  [ -n "$release_words" ] ||
    release_words=$(release_run "$bundle/bin/medley" "${release_question[@]}" 2>/dev/null) ||
    die "the bundle's own medley failed"
}

# In a copy of a bare root, with a network: apt fetches what the package needs.
package_try() {
  local bare copy=$package_files/bare status=0 way=() processes=(--proc /proc --unshare-pid)
  if release_is_native; then bare=$(bare_root trixie) || return 1; else
    bare=$(bare_foreign_root) || return 1
    way=(foreign_run)
    processes=(--bind /proc /proc) # a user namespace may not mount it anew
  fi
  package_words
  say "installing, upgrading, removing and purging it in a bare Debian 13 ($release_arch)"
  rm -rf --one-file-system "$copy"
  cp -a "$bare" "$copy"
  "${way[@]}" bwrap --bind "$copy" / --dev /dev "${processes[@]}" --ro-bind /sys /sys \
    --perms 1777 --tmpfs /tmp --ro-bind "$repo/tests/release" /srv --ro-bind "$package_files" /mnt \
    --ro-bind /etc/resolv.conf /etc/resolv.conf --die-with-parent --chdir /tmp --cap-add ALL \
    --clearenv --setenv HOME /root --setenv PATH /usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    sh /srv/deb.sh "/mnt/$(cd "$package_files" && echo medley_*.deb)" "$release_words" || status=1
  rm -rf --one-file-system "$copy"
  return $status
}

# Debian's own test of installing and purging, in another copy of it.
package_piuparts() {
  local bare piuparts_root work=$repo/build/piuparts status=0
  bare=$(bare_root trixie) || return 1
  piuparts_root=$(root_for trixie "$repo/tools/piuparts-packages.txt")
  say "piuparts"
  rm -rf --one-file-system "$work"
  mkdir -p "$work/tmp"
  cp -a "$bare" "$work/bare"
  printf 'APT::Sandbox::User "root";\nAcquire::Check-Valid-Until "false";\n' \
    >"$work/bare/etc/apt/apt.conf.d/99check"
  root_enter "$piuparts_root" piuparts --existing-chroot "$work/bare" --keep-sources-list \
    --no-eatmydata --distribution trixie --tmpdir "$work/tmp" --log-file "$work/log" \
    "$package_files"/medley_*.deb >/dev/null 2>&1 || status=1
  if [ $status = 0 ]; then grep -o 'PASS: .*' "$work/log" >&2
  else grep -E 'ERROR|FAIL' "$work/log" | tail -n 20 >&2; fi
  rm -rf --one-file-system "$work/bare" "$work/tmp"
  return $status
}
