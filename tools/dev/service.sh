# ./dev service-check: the service under a real systemd. Sourced by ./dev after release.sh.
#
# Systemd is the first process of namespaces of its own: of processes, mounts, network (a loopback
# alone), names, control groups. Its root is the one that everything runs in, under a layer that is
# thrown away; this machine's own systemd, if there is one, is not touched. Needs root.

verb_service_check() {
  [ "$(id -u)" = 0 ] || die "service-check needs root: it makes namespaces and mounts"
  build_targets=(src/cli/medley)
  build_release
  local lower=${root:-/} work
  work=$(mktemp -d "$repo/build/service.XXXXXX")
  say "starting a systemd of Debian 13, without a network"
  local status=0
  unshare --mount --pid --fork --uts --ipc --net --cgroup --kill-child --propagation private \
    bash "$repo/tools/dev/service_root.sh" "$lower" "$repo" "$work" \
    </dev/null >"$work/systemd.log" 2>&1 &
  local namespaces=$!
  service_check_in "$namespaces" || status=$?
  kill -KILL "$namespaces" 2>/dev/null
  wait "$namespaces" 2>/dev/null || true
  [ $status = 0 ] || tail -n 20 "$work/systemd.log" >&2
  rm -rf --one-file-system "$work"
  return $status
}

service_check_in() { # PID of unshare, whose child is the systemd
  local first
  for _ in $(seq 100); do
    first=$(pgrep -P "$1" | head -n 1)
    if [ -n "$first" ] && [ "$(readlink "/proc/$first/exe" 2>/dev/null)" != "$(readlink /proc/$$/exe)" ] &&
      nsenter -t "$first" --mount --pid test -S /run/systemd/private 2>/dev/null; then
      nsenter -t "$first" --mount --pid --uts --ipc --net --cgroup --wd=/ \
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        python3 /opt/medley/tests/release/service.py /opt/medley/build/release/src/cli/medley \
        /opt/medley/models/demo.gguf </dev/null
      return
    fi
    sleep 0.2
  done
  say "systemd did not start in 20 s"
  return 1
}
