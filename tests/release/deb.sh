# deb.sh DEB WORDS: installs the package in a bare Debian 13, upgrades it, uses it, removes and
# purges it. WORDS are what the bundled model must tell. Run as root in a root that may be spoilt, with a
# network. What is left over is an error.
set -eu
deb=$1
words=$2
flaw() { printf 'package-check: %s\n' "$*" >&2; exit 1; }
export DEBIAN_FRONTEND=noninteractive
apt="apt-get -qq -y -o APT::Sandbox::User=root -o Acquire::Check-Valid-Until=false"
named() { # files that bear the program's name
  find / -xdev \( -path /proc -o -path /sys -o -path /mnt -o -path /srv -o -path /tmp \) -prune -o \
    -iname '*medley*' -print
}

$apt update
old=$(mktemp -d)
dpkg-deb -R "$deb" "$old/tree"
sed -i 's/^Version: .*/Version: 0.0.0~lower/' "$old/tree/DEBIAN/control"
dpkg-deb -Zgzip -z1 -b "$old/tree" "$old/medley_0.0.0~lower.deb" >/dev/null

began=$(date +%s%N)
$apt install "$old/medley_0.0.0~lower.deb" >"$old/said" 2>&1 || { cat "$old/said" >&2; exit 1; }
printf 'installed with what it needs in %d ms\n' $((($(date +%s%N) - began) / 1000000))
medley --version || flaw "it does not start"
$apt install "$deb" >"$old/said" 2>&1 || { cat "$old/said" >&2; exit 1; }
dpkg-query -W medley
[ "$(dpkg-query -W -f '${Version}' medley)" != 0.0.0~lower ] || flaw "it was not upgraded"
medley devices | grep -qi cpu || flaw "no processor was found"
[ "$(medley run /usr/share/medley/demo.gguf -p "Tell me a story about a fox." -n 40 --temp 0 \
  --devices cpu 2>/dev/null)" = "$words" ] || flaw "the bundled model tells another text"
timeout 120 bash /srv/served.sh medley /usr/share/medley/demo.gguf 18080 ||
  flaw "its API does not answer"
echo
[ ! -e /etc/systemd/system/multi-user.target.wants/medley.service ] || flaw "it enabled itself"
mkdir -p /var/lib/private/medley
$apt remove medley >/dev/null
[ ! -e /usr/bin/medley ] && [ ! -e /usr/lib/medley ] || flaw "removing left the program"
[ -d /var/lib/private/medley ] || flaw "removing took the node's state"
$apt purge medley >/dev/null
rm -rf "$old" ~root/.local/state/medley ~root/.cache/medley ~root/.local/share/medley
left=$(named)
[ -z "$left" ] || flaw "purging left: $left"
echo "upgraded, used, removed, purged: nothing is left"
