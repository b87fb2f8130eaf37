# The environment that everything runs in: Debian 13, with the packages of tools/packages.txt.
# Sourced by ./dev; needs $repo.

cache=${XDG_CACHE_HOME:-$HOME/.cache}/medley
packages_file=$repo/tools/packages.txt
root_options=() # more that root_make tells mmdebstrap
extra_binds=() # folders that root_enter shows inside besides the repository and the cache

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
  elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then sudo "$@"
  else die "this needs root once: please run as root:  $*"
  fi
}

quietly() { # runs CMD; shows what it said only if it fails
  local log status=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 </dev/null || status=$?
  [ $status = 0 ] || tail -n 30 "$log" >&2
  rm -f "$log"
  return $status
}

# ---- this machine is Debian 13 itself -----------------------------------------------------------

host_suites() { # makes trixie-backports known to apt, by the machine's own mirror
  ! apt-cache policy | grep -q "n=trixie-backports" || return 0
  local line
  line=$(mirror_line /etc/apt) ||
    die "no 'trixie main' source found in /etc/apt: please add trixie-backports by hand"
  printf '%s\n' "$line" | as_root tee /etc/apt/sources.list.d/medley-backports.list >/dev/null
}

mirror_line() { # apt folder -> a one-line source for trixie-backports on the same mirror
  local uri
  uri=$(cat "$1"/sources.list "$1"/sources.list.d/*.list 2>/dev/null |
    sed -n 's/^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*\) trixie .*main.*/\2/p' | head -n 1)
  [ -n "$uri" ] || uri=$(cat "$1"/sources.list.d/*.sources 2>/dev/null |
    awk -v RS= '{ uri = ""; found = 0
      for (i = 1; i <= NF; i++) { if ($i == "URIs:") uri = $(i + 1); if ($i == "trixie") found = 1 }
      if (found && uri) { print uri; exit } }')
  [ -n "$uri" ] || return 1
  printf 'deb %s trixie-backports main\n' "$uri"
}

host_prepare() {
  local missing=() name
  while read -r name; do
    dpkg-query -W -f '${Status}' "${name%%/*}" 2>/dev/null | grep -q 'ok installed' ||
      missing+=("$name")
  done < <(package_list "$packages_file")
  [ ${#missing[@]} != 0 ] || return 0
  say "this machine is Debian 13 itself: installing ${#missing[@]} missing packages with apt" \
    "(a minute or two, once)"
  host_suites
  quietly as_root apt-get update -qq || die "apt-get update failed"
  quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
    --no-install-recommends "${missing[@]}" ||
    die "apt-get could not install: ${missing[*]}"
}

# ---- any other Linux: a private root -----------------------------------------------------------

root_key() { # hash of the package lists given
  package_list "$@" | sha256sum | cut -c1-12
}

root_tools() {
  if ! command -v mmdebstrap >/dev/null || ! command -v bwrap >/dev/null; then
    command -v apt-get >/dev/null ||
      die "needs mmdebstrap and bubblewrap (bwrap):" \
        "please install them with this system's package manager"
    say "installing mmdebstrap and bubblewrap on this machine"
    quietly as_root apt-get update -qq || say "apt-get update failed; going on with what apt knows"
    quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
      --no-install-recommends mmdebstrap bubblewrap uidmap debian-archive-keyring ||
      die "could not install them:" \
        "please run as root:  apt-get install mmdebstrap bubblewrap uidmap"
  fi
  bwrap --ro-bind / / true 2>/dev/null ||
    die "bubblewrap cannot make namespaces here: run as root, or allow unprivileged user" \
      "namespaces (sysctl kernel.unprivileged_userns_clone=1, and on Ubuntu" \
      "kernel.apparmor_restrict_unprivileged_userns=0); in a container, run it with --privileged"
}

# root_make SUITE DIR LIST...: makes a Debian root with the packages of the lists. Whole or not at
# all.
root_make() {
  local suite=$1 dir=$2
  shift 2
  local packages part=$dir.part.$$ log=$dir.log attempt aptopts=("${root_options[@]}")
  packages=$(package_list "$@" | tr '\n' ' ')
  rm -rf --one-file-system "$dir".part.*
  say "making a private Debian $suite root in $dir" \
    "($(package_list "$@" | wc -l) packages and what they need; 1 to 3 minutes, once)"
  for attempt in 1 2; do
    if with_progress "$log" root_mmdebstrap "$suite" "$part" "$packages" "${aptopts[@]}"; then
      mv "$part" "$dir"
      rm -f "$log"
      return 0
    fi
    rm -rf --one-file-system "$part"
    [ $attempt = 1 ] || break
    if grep -q -i -E 'not valid|expired' "$log"; then
      say "trying again, accepting a mirror whose index has expired"
      aptopts+=(--aptopt='Acquire::Check-Valid-Until "false"')
    else
      say "that failed ($(grep -E '^(E|Err)' "$log" | head -n 1 | cut -c1-150)); trying once more"
    fi
  done
  tail -n 20 "$log" >&2
  die "could not make the root; the whole log is $log"
}

# with_progress LOG CMD...: runs CMD with its words in LOG; says every ten seconds what the last of
# them is.
with_progress() {
  local log=$1 pid start=$SECONDS said=$SECONDS
  shift
  set -m # a process group of its own, so that all of it can be stopped
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  set +m
  trap 'kill -TERM -- "-$pid" 2>/dev/null; wait "$pid"; die "stopped"' INT TERM HUP PIPE
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.1
    if [ $((SECONDS - said)) -ge 10 ]; then
      said=$SECONDS
      say "  $((SECONDS - start)) s: $(tail -n 1 "$log" | tr '\r' '\n' | tail -n 1 | cut -c1-70)"
    fi
    kill -0 $$ 2>/dev/null || kill -TERM $BASHPID # ./dev itself was killed: end its work too
  done
  trap - INT TERM HUP PIPE
  wait "$pid"
}

root_mmdebstrap() { # suite, dir, packages, options
  local suite=$1 dir=$2 packages=$3 backports target=$2
  shift 3
  backports=true
  # shellcheck disable=SC2016  # expanded by the hook's own shell
  [ "$suite" != trixie ] ||
    backports='sed -n "s/^deb \(.*\) trixie main.*/deb \1 trixie-backports main/p" \
      "$1/etc/apt/sources.list" | head -n 1 >"$1/etc/apt/sources.list.d/backports.list" &&
      chroot "$1" apt-get update -qq'
  # A user without root makes the root in a user namespace and unpacks it as files of their own.
  [ "$(id -u)" = 0 ] || target=-
  mmdebstrap --variant=apt "$@" \
    --aptopt='Acquire::Retries "3"' --dpkgopt=force-unsafe-io \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --customize-hook="$backports" \
    --customize-hook="chroot \"\$1\" env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends $packages" \
    --customize-hook='chroot "$1" apt-get clean' \
    "$suite" "$target" | if [ "$target" = - ]; then
      mkdir "$dir" && tar -x -C "$dir" --exclude='./dev/*' --no-same-owner
    else cat; fi
}

cache_make() {
  mkdir -p "$cache" ||
    die "cannot make the cache folder $cache (XDG_CACHE_HOME names another place)"
}

# root_for SUITE LIST...: prints the folder of the root with those packages, made if need be.
root_for() {
  cache_make
  local suite=$1 dir
  shift
  dir=$cache/$suite-$(root_key "$@")
  if [ ! -d "$dir" ]; then
    root_tools
    (
      flock -n 9 || { say "waiting for another ./dev that is making a root"; flock 9; }
      [ -d "$dir" ] || root_make "$suite" "$dir" "$@"
    ) 9>"$cache/lock" || exit 1
  fi
  printf '%s\n' "$dir"
}

# root_enter DIR CMD...: runs CMD inside that root, in the repository, with the machine's devices.
# /tmp is empty and private unless MEDLEY_TMP=host.
root_enter() {
  local dir=$1 path
  shift
  local args=(--bind "$dir" / --dev-bind /dev /dev --proc /proc --ro-bind /sys /sys)
  if [ "${MEDLEY_TMP:-}" = host ]; then args+=(--bind /tmp /tmp); else args+=(--tmpfs /tmp); fi
  for path in "${extra_binds[@]}" ${MEDLEY_BIND:-}; do args+=(--bind "$path" "$path"); done
  args+=(--bind "$repo" "$repo" --bind "$cache" "$cache" --chdir "$PWD" --die-with-parent
    --unshare-pid --setenv HOME "$HOME"
    --setenv XDG_CACHE_HOME "${XDG_CACHE_HOME:-$HOME/.cache}" --setenv LC_ALL C.UTF-8
    --setenv PATH /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
  for path in LD_PRELOAD LD_LIBRARY_PATH LIBRARY_PATH PYTHONPATH PYTHONHOME; do
    args+=(--unsetenv "$path")
  done
  driver_find
  args+=("${driver_args[@]}")
  [ "$(id -u)" != 0 ] || args+=(--cap-add ALL)
  for path in /etc/resolv.conf /etc/npmrc "$HOME/.npmrc" /etc/ssl/certs; do
    [ ! -e "$path" ] || args+=(--ro-bind "$(readlink -f "$path")" "$path")
  done
  bwrap "${args[@]}" "$@"
}

# Shows inside what a person's paths may point into: every folder of this machine that a Debian has
# not itself.
bind_user_folders() {
  local path
  MEDLEY_TMP=host
  for path in /*; do
    case $path in
      /bin | /boot | /dev | /etc | /lib* | /lost+found | /proc | /run | /sbin | /snap | /sys | \
        /tmp | /usr | /var) ;;
      *) [ ! -d "$path" ] || [ -L "$path" ] || [ ! -r "$path" ] || extra_binds+=("$path") ;;
    esac
  done
}

# ---- what the verbs use ----------------------------------------------------------------------

env_prepare() {
  cache_make
  if [ -n "${MEDLEY_INSIDE:-}" ]; then return 0; fi
  if on_debian_13; then host_prepare; else root=$(root_for trixie "$packages_file"); fi
}

# inside CMD...: runs CMD in Debian 13. What compilers made, Mesa's of shaders too, is kept in the
# cache folder; ccache takes the same file in another work tree for the same.
inside() {
  # Git's folder may lie where the root does not see it: the version is asked for out here, once.
  : "${medley_version:=$("$repo/tools/version.sh")}"
  local setting=(MEDLEY_INSIDE=1 "MEDLEY_VERSION=$medley_version"
    "MESA_SHADER_CACHE_DIR=${MESA_SHADER_CACHE_DIR:-$cache/shaders}"
    "npm_config_cache=$cache/npm" "CCACHE_DIR=$cache/ccache" CCACHE_NOHASHDIR=1)
  if [ -n "${MEDLEY_INSIDE:-}" ] || on_debian_13; then
    env "${setting[@]}" "$@"
  else
    root_enter "$root" env -u CC -u CXX -u CFLAGS -u LDFLAGS "${setting[@]}" "$@"
  fi
}
