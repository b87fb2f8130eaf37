# rpm.sh FILES WORK WORDS: builds the RPM of a release, and one of a lower number; judges it;
# installs the lower one, upgrades it, uses it, verifies it and removes it (common.sh).
. "$(dirname "$0")/common.sh"

spec_build() { # RELEASE
  sed "s/^Release: .*/Release: $1/" "$files/medley.spec" >"$work/medley.spec"
  loudly rpmbuild -bb --define "_topdir $work/top" --define "_sourcedir $files" "$work/medley.spec"
}

# Debian's C library is no RPM; this says that it is there.
c_library_build() {
  cat >"$work/glibc.spec" <<'SPEC'
Name: glibc
Version: 2.41
Release: 1
Summary: Stands for Debian's
License: LGPL-2.1-or-later
BuildArch: noarch
%description
Stands for Debian's.
%files
SPEC
  loudly rpmbuild -bb --define "_topdir $work/top" "$work/glibc.spec"
}

root_rpm() {
  rpm --root "$root" "$@"
}

spec_build 0.1
spec_build 1
c_library_build
lower=$(echo "$work"/top/RPMS/*/medley-*-0.1.*.rpm)
package=$(echo "$work"/top/RPMS/*/medley-*-1.*.rpm)
rpmlint --config "$(dirname "$0")/rpmlint.toml" "$package" >"$work/lint" 2>&1 || {
  cat "$work/lint" >&2
  flaw "rpmlint"
}
tail -n 1 "$work/lint"

root_mount
loudly root_rpm --initdb
! root_rpm -i "$package" >"$work/said" 2>&1 && grep -q 'glibc >= 2.38 is needed' "$work/said" || {
  cat "$work/said" >&2
  flaw "without glibc 2.38 it was not refused with the reason"
}
loudly root_rpm -i "$work"/top/RPMS/noarch/glibc-*.rpm
loudly root_rpm -i "$lower"
in_root medley --version
loudly root_rpm -U "$package"
[ "$(root_rpm -q --qf '%{release}' medley)" = 1 ] || flaw "it was not upgraded"
root_use /usr/libexec/medley/share/medley/demo.gguf
loudly root_rpm -V medley
loudly root_rpm -e medley
root_is_empty
echo "RPM: built, refused without glibc 2.38, installed, upgraded, used, verified, removed"
