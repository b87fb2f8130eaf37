# The environment that everything runs in: Debian 13, with the packages of tools/packages.txt.
# Sourced by ./dev; needs $repo.

cache=${XDG_CACHE_HOME:-$HOME/.cache}/medley
packages_file=$repo/tools/packages.txt

say() { printf 'medley: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

package_list() { # one name a line, comments dropped
  sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$@"
}

on_debian_13() {
  [ -r /etc/os-release ] || return 1
  (. /etc/os-release && [ "${ID:-}" = debian ] && [ "${VERSION_ID:-0}" -ge 13 ]) 2>/dev/null
}

as_root() { # runs a command as root, or says what a person must run
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else die "this needs root once: please run as root:  $*"
  fi
}

# ---- this machine is Debian 13 itself -----------------------------------------------------------

host_suites() { # makes trixie-backports known to apt, by the machine's own mirror
  apt-cache policy | grep -q "n=trixie-backports" && return 0
  local line
  line=$(mirror_line /etc/apt) || die "no 'trixie main' source found in /etc/apt: add trixie-backports by hand"
  printf '%s\n' "$line" | as_root tee /etc/apt/sources.list.d/medley-backports.list >/dev/null
}

mirror_line() { # apt folder -> a one-line source for trixie-backports on the same mirror
  local uri
  uri=$(cat "$1"/sources.list "$1"/sources.list.d/*.list 2>/dev/null |
    sed -n 's/^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*\) trixie .*main.*/\2/p' | head -n 1)
  [ -n "$uri" ] || uri=$(cat "$1"/sources.list.d/*.sources 2>/dev/null |
    awk '/^URIs:/{u=$2} /^Suites:/{for(i=2;i<=NF;i++) if($i=="trixie") print u}' | head -n 1)
  [ -n "$uri" ] || return 1
  printf 'deb %s trixie-backports main\n' "$uri"
}

host_prepare() {
  local missing=() name
  while read -r name; do
    dpkg-query -W -f '${Status}' "${name%%/*}" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
  done < <(package_list "$packages_file")
  [ ${#missing[@]} = 0 ] && return 0
  say "installing ${#missing[@]} missing packages on this machine"
  host_suites
  as_root apt-get update -qq
  as_root apt-get install -y --no-install-recommends "${missing[@]}"
}

# ---- any other Linux: a private root -----------------------------------------------------------

root_key() { # hash of the package lists given
  package_list "$@" | sha256sum | cut -c1-12
}

root_tools() {
  command -v mmdebstrap >/dev/null && command -v bwrap >/dev/null && return 0
  command -v apt-get >/dev/null ||
    die "needs mmdebstrap and bubblewrap (bwrap): please install them with this system's package manager"
  say "installing mmdebstrap and bubblewrap on this machine"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    mmdebstrap bubblewrap uidmap >/dev/null
}

# root_make SUITE DIR LIST...: makes a Debian root with the packages of the lists. Whole or not at all.
root_make() {
  local suite=$1 dir=$2
  shift 2
  local packages part=$dir.part.$$ log=$dir.log attempt
  packages=$(package_list "$@" | tr '\n' ' ')
  mkdir -p "$(dirname "$dir")"
  say "making a private Debian $suite root ($(package_list "$@" | wc -l) packages and what they need; 1 to 3 minutes, once)"
  for attempt in fresh stale; do
    local aptopts=()
    if [ $attempt = stale ]; then
      say "trying again, accepting a mirror whose index has expired"
      aptopts=(--aptopt='Acquire::Check-Valid-Until "false"')
    fi
    root_mmdebstrap "$suite" "$part" "$packages" "${aptopts[@]}" >"$log" 2>&1 </dev/null &
    if wait_with_progress $! "$log"; then
      mv "$part" "$dir"
      rm -f "$log"
      return 0
    fi
    rm -rf --one-file-system "$part"
  done
  tail -n 20 "$log" >&2
  die "could not make the root; the whole log is $log"
}

wait_with_progress() { # pid, log: says every ten seconds what the last line of the log is
  local pid=$1 log=$2 seconds=0
  while kill -0 "$pid" 2>/dev/null; do
    sleep 1
    seconds=$((seconds + 1))
    [ $((seconds % 10)) != 0 ] || say "  ${seconds} s: $(tail -n 1 "$log" | tr '\r' '\n' | tail -n 1 | cut -c1-70)"
  done
  wait "$pid"
}

root_mmdebstrap() { # suite, dir, packages, options
  local suite=$1 dir=$2 packages=$3 backports
  shift 3
  backports=true
  # shellcheck disable=SC2016  # expanded by the hook's own shell
  [ "$suite" != trixie ] || backports='sed -n "s/^deb \(.*\) trixie main.*/deb \1 trixie-backports main/p" "$1/etc/apt/sources.list" | head -n 1 >"$1/etc/apt/sources.list.d/backports.list" && chroot "$1" apt-get update -qq'
  mmdebstrap --variant=apt "$@" \
    --aptopt='Acquire::Retries "3"' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --customize-hook="$backports" \
    --customize-hook="chroot \"\$1\" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages" \
    --customize-hook='chroot "$1" apt-get clean' \
    "$suite" "$dir"
}

# root_for SUITE LIST...: prints the folder of the root with those packages, made if need be.
root_for() {
  local suite=$1 dir
  shift
  dir=$cache/$suite-$(root_key "$@")
  mkdir -p "$cache"
  if [ ! -d "$dir" ]; then
    root_tools
    (
      flock 9
      [ -d "$dir" ] || root_make "$suite" "$dir" "$@"
    ) 9>"$cache/lock" || exit 1
  fi
  printf '%s\n' "$dir"
}

# root_enter DIR CMD...: runs CMD inside that root, in the repository, with the machine's devices.
root_enter() {
  local dir=$1
  shift
  local args=(--bind "$dir" / --dev-bind /dev /dev --proc /proc --ro-bind /sys /sys --tmpfs /tmp
    --bind "$repo" "$repo" --bind "$cache" "$cache" --chdir "$PWD" --die-with-parent
    --setenv HOME "$HOME" --setenv XDG_CACHE_HOME "${XDG_CACHE_HOME:-$HOME/.cache}")
  [ "$(id -u)" != 0 ] || args+=(--cap-add ALL)
  local path
  for path in /etc/resolv.conf "$HOME/.npmrc" /etc/ssl/certs; do
    [ ! -e "$path" ] || args+=(--ro-bind "$(readlink -f "$path")" "$path")
  done
  for path in ${MEDLEY_BIND:-}; do args+=(--bind "$path" "$path"); done
  bwrap "${args[@]}" "$@"
}

# ---- what the verbs use ----------------------------------------------------------------------

env_prepare() {
  if [ -n "${MEDLEY_INSIDE:-}" ]; then return 0; fi
  if on_debian_13; then host_prepare; else root=$(root_for trixie "$packages_file"); fi
}

# inside CMD...: runs CMD in Debian 13.
inside() {
  if [ -n "${MEDLEY_INSIDE:-}" ] || on_debian_13; then
    MEDLEY_INSIDE=1 "$@"
  else
    MEDLEY_INSIDE=1 root_enter "$root" "$@"
  fi
}
