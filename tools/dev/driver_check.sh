# ./dev driver-check: a made-up NVIDIA driver on a made-up host, used in the root. Sourced by
# ./dev after driver.sh.
#
# The host has Fedora's layout and lies in a folder of build/. Its libcuda and NVML are stubs, its
# Vulkan driver is lavapipe under another name and version (tests/driver/standin_vulkan.c). The
# driver is found, shown inside, verified and computed with; then it is replaced while the root
# stands.

verb_driver_check() {
  on_debian_13 && die "driver-check tries the private root, and this machine needs none"
  build_targets=(src/cli/medley)
  build_release
  local status=0
  driver_host=$(mktemp -d "$repo/build/driver.XXXXXX")
  driver_kept=$driver_host.kept
  driver_check "$driver_host" || status=1
  rm -rf "$driver_host" "$driver_kept"
  driver_host=
  [ $status != 0 ] || say "the driver: seen, verified, used, and replaced while the root stood"
  return $status
}

driver_check() { # HOST
  local version list
  for version in 570.86 575.51; do
    driver_check_host "$1" "$version" || return 1
    say "a host with NVIDIA $version"
    driver_check_says "$version" || return 1
    list=$(driver_check_medley devices) || return 1
    driver_check_has "$list" "vulkan0  NVIDIA $version (stand-in, lavapipe) .*ready" || return 1
    driver_check_has "$list" "NVIDIA $version: 4 libraries of the host" || return 1
    driver_check_has "$list" "vulkan0  .* driver llvmpipe stand-in ${version/./}" || return 1
    ! grep -q ' nvml ' <<<"$list" || { say "its NVML is not used"; return 1; }
  done
  list=$(grep -o '"driver": "stand-in[^"]*icd[^"]*"' "$driver_kept/state/devices.json" | sort -u)
  [ "$(wc -l <<<"$list")" = 2 ] || { say "the registry knows $list, not 2 drivers"; return 1; }
  say "its device computes"
  driver_check_text cpu >"$driver_kept/cpu" && driver_check_text vulkan0 >"$driver_kept/gpu" ||
    return 1
  [ -s "$driver_kept/cpu" ] && cmp "$driver_kept/cpu" "$driver_kept/gpu" || return 1
  say "medley doctor --hardware (a minute)"
  list=$(driver_check_medley doctor --hardware --seconds 1) || return 1
  driver_check_has "$list" '"name": "NVIDIA 575.51 (stand-in, lavapipe)"' || return 1
  driver_check_has "$list" '"name": "ROPE"' || return 1
  ! grep -q -e '"wrong"' -e '"failed"' -e "$(uname -n)" <<<"$list" || return 1
}

driver_check_says() { # VERSION
  driver_find
  driver_check_has "$(printf '%s\n' "${driver_notes[@]}")" "^NVIDIA $1: 4 libraries of the host$"
}

driver_check_text() { # DEVICE
  driver_check_medley run models/demo.gguf --devices "$1" -p "Once upon a time" -n 16 --temp 0 \
    2>"$driver_kept/errors" || { cat "$driver_kept/errors" >&2; return 1; }
}

driver_check_medley() {
  inside env MEDLEY_STATE_DIR="$driver_kept/state" "$release_dir/src/cli/medley" "$@" </dev/null
}

driver_check_has() { # TEXT PATTERN
  printf '%s\n' "$1" | grep -q -- "$2" || {
    printf '%s\n' "$1" >&2
    say "no '$2' in the above"
    return 1
  }
}

# driver_check_host HOST VERSION: a host with that driver, and none of another version.
driver_check_host() {
  local libraries=$1/usr/lib64 number=${2//./}
  rm -rf "$libraries"
  mkdir -p "$libraries" "$1"/{sbin,dev,sys/module/nvidia,usr/share/vulkan/icd.d,lib}
  printf '%s\n' "$2" >"$1/sys/module/nvidia/version"
  touch "$1/dev/nvidiactl" "$1/dev/nvidia-uvm" "$1/dev/nvidia0"
  printf '{"file_format_version": "1.0.1", "ICD": {"library_path": "%s", "api_version": "%s"}}\n' \
    libGLX_nvidia.so.0 1.4.0 >"$1/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json"
  driver_host='' inside gcc -shared -fPIC -fvisibility=hidden -o "$libraries/libGLX_nvidia.so.$2" \
    "-DSTANDIN_NAME=\"NVIDIA $2 (stand-in, lavapipe)\"" "-DSTANDIN_VERSION=$number" \
    tests/driver/standin_vulkan.c &&
    driver_host='' inside gcc -shared -fPIC -DWHOLE -o "$libraries/libnvidia-ml.so.$2" \
      tests/unit/standin_nvml.c &&
    printf 'int cuInit(unsigned flags) { return (int)flags; }\n' |
    driver_host='' inside gcc -shared -fPIC -o "$libraries/libcuda.so.$2" -x c - || return 1
  cp "$libraries/libcuda.so.$2" "$libraries/libnvidia-glcore.so.$2"
  ln -s "libGLX_nvidia.so.$2" "$libraries/libGLX_nvidia.so.0"
  ln -s "libnvidia-ml.so.$2" "$libraries/libnvidia-ml.so.1"
  ln -s "libcuda.so.$2" "$libraries/libcuda.so.1"
  {
    printf '#!/bin/sh\ncat <<END\n'
    printf '\t%s (libc6,x86-64) => /lib64/%s\n' libGLX_nvidia.so.0 libGLX_nvidia.so.0 \
      libnvidia-ml.so.1 libnvidia-ml.so.1 libcuda.so.1 libcuda.so.1
    printf 'END\n'
  } >"$1/sbin/ldconfig"
  chmod +x "$1/sbin/ldconfig"
  ln -sfn usr/lib64 "$1/lib64"
}
