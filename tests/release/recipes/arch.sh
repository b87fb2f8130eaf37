# arch.sh FILES WORK WORDS: makepkg builds the package of a release, and one of a lower number;
# pacman installs the lower one, upgrades it, checks it and removes it (common.sh).
. "$(dirname "$0")/common.sh"

# In /tmp, which is private: makepkg refuses to run as root, and another user may not see WORK.
pkgbuild_make() { # RELEASE
  local made=/tmp/$1
  mkdir "$made"
  cp "$files"/medley-*-linux-*.tar.gz "$made/"
  sed -e "s/^pkgrel=.*/pkgrel=$1/" \
    -e "s/SKIP/$(sha256sum "$files"/medley-*-linux-*.tar.gz | cut -d' ' -f1)/" "$files/PKGBUILD" \
    >"$made/PKGBUILD"
  chown -R 1000:1000 "$made"
  (
    cd "$made" # without dependencies: Debian's C library is not pacman's
    loudly setpriv --reuid 1000 --regid 1000 --clear-groups env HOME="$made" \
      makepkg --nodeps --config /tmp/makepkg.conf
  )
  rm -rf "$made"/pkg "$made"/src
}

root_pacman() {
  pacman --root "$root" --dbpath "$root/var/lib/pacman" --cachedir "$work/cache" \
    --logfile "$work/pacman.log" --gpgdir "$work/gpg" --config "$work/pacman.conf" --noconfirm "$@"
}

printf '[options]\nArchitecture = auto\nSigLevel = Never\nLocalFileSigLevel = Never\n' \
  >"$work/pacman.conf"
printf 'CARCH=%s\nCHOST=%s-linux-gnu\nPKGEXT=.pkg.tar.zst\nSRCEXT=.src.tar.gz\n' "$(uname -m)" \
  "$(uname -m)" >/tmp/makepkg.conf
printf '%s\n' "DLAGENTS=()" "BUILDENV=(fakeroot !color !check !sign)" \
  "OPTIONS=(!strip docs !libtool !staticlibs emptydirs zipman purge !debug)" \
  "INTEGRITY_CHECK=(sha256)" "MAN_DIRS=(usr/share/man)" "COMPRESSZST=(zstd -c -T1 -)" \
  "PACKAGER=recipe-check" >>/tmp/makepkg.conf
pkgbuild_make 0.1
pkgbuild_make 1

root_mount
mkdir -p "$root/var/lib/pacman"
! root_pacman -U /tmp/1/*.pkg.tar.zst >"$work/said" 2>&1 &&
  grep -q "glibc>=2.38" "$work/said" || {
  cat "$work/said" >&2
  flaw "without glibc 2.38 it was not refused with the reason"
}
loudly root_pacman -U --assume-installed glibc=2.41 /tmp/0.1/*.pkg.tar.zst
in_root medley --version
loudly root_pacman -U --assume-installed glibc=2.41 /tmp/1/*.pkg.tar.zst
root_pacman -Q medley-bin | grep -q -e '-1$' || flaw "it was not upgraded"
root_use /usr/lib/medley/share/medley/demo.gguf
loudly root_pacman -Qkk medley-bin
loudly root_pacman -R medley-bin
rm -rf "$root/var/lib/pacman"
root_is_empty
echo "Arch: built, refused without glibc 2.38, installed, upgraded, used, checked, removed"
