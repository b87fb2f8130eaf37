# The host's GPU driver inside a private root. Sourced by ./dev after environment.sh; needs $cache.
#
# A driver's libraries must be of the very version of its kernel module. So NVIDIA's come from the
# host, read-only, into a folder of their own; AMD's and Intel's are Mesa's, which the root has and
# which any kernel takes. Looked for at every entry: a driver that is replaced while the root stands
# is seen by the next ./dev.

driver_host=${driver_host:-}              # the folder below which the host lies; tests make one up
driver_kept=${driver_kept:-$cache/driver} # where what is written for the root is kept
driver_args=()                            # for bwrap
driver_notes=()                           # what was found and what is missing, a line each
declare -A driver_libraries               # soname -> file on the host

# driver_resolve PATH: puts the file behind PATH's links, as the host names it, into `resolved`.
driver_resolve() {
  local rest=$1 at='' part target steps=0
  while [ -n "$rest" ]; do
    rest=${rest#"${rest%%[!/]*}"}
    part=${rest%%/*}
    rest=${rest#"$part"}
    case $part in
      '' | .) ;;
      ..) at=${at%/*} ;;
      *)
        if [ -L "$driver_host$at/$part" ]; then
          steps=$((steps + 1))
          [ $steps -le 40 ] || return 1
          target=$(readlink "$driver_host$at/$part")
          [ "${target#/}" = "$target" ] || at=
          rest=$target$rest
        else at=$at/$part; fi ;;
    esac
  done
  resolved=$at
  [ -f "$driver_host$at" ]
}

# driver_tool NAME: the path of a program of the host, which need not be on a user's PATH.
driver_tool() {
  local folder
  for folder in sbin usr/sbin usr/bin bin run/current-system/sw/bin; do
    if [ -x "$driver_host/$folder/$1" ]; then
      printf '%s\n' "$driver_host/$folder/$1"
      return
    fi
  done
  return 1
}

# "SONAME PATH" of each library that may be NVIDIA's, of this processor's kind.
driver_candidates() {
  local tool machine file
  case $(uname -m) in x86_64) machine=x86-64 ;; aarch64) machine=AArch64 ;; *) machine= ;; esac
  ! tool=$(driver_tool ldconfig) || "$tool" -p 2>/dev/null |
    sed -n "s/^[[:space:]]*\([^ ]*\) (.*$machine.*) => \(.*\)/\1 \2/p" |
    grep -E '^lib(cuda|nv)|nvidia' || true
  for file in "$driver_host"/run/opengl-driver/lib/lib*.so*; do
    if [ -e "$file" ] || [ -L "$file" ]; then
      printf '%s %s\n' "${file##*/}" "${file#"$driver_host"}"
    fi
  done
}

# ---- NVIDIA --------------------------------------------------------------------------------------

# driver_nvidia_libraries VERSION: fills driver_libraries; sets `other`, the version of another
# driver's libraries, and `n_files`.
driver_nvidia_libraries() {
  local name path resolved file
  declare -A folders=() files=()
  while read -r name path; do
    driver_resolve "$path" || continue
    case $resolved in
      *.so."$1")
        driver_libraries[$name]=$resolved
        files[$resolved]=1
        folders[${resolved%/*}]=1 ;;
      */libcuda.so.*.* | */libnvidia-ml.so.*.*) other=${resolved##*.so.} ;;
    esac
  done < <(driver_candidates)
  for path in "${!folders[@]}"; do # what no soname leads to
    for file in "$driver_host$path"/*.so."$1"; do
      driver_libraries[${file##*/}]=${file#"$driver_host"}
      files[${file#"$driver_host"}]=1
    done
  done
  n_files=${#files[@]}
}

# driver_keep FILE: writes standard input to FILE, whole or not at all.
driver_keep() {
  mkdir -p "${1%/*}"
  cat >"$1.$$"
  mv "$1.$$" "$1"
}

# driver_nvidia_icds PLACE KEPT: what tells the loaders of Vulkan and OpenCL where the driver is.
driver_nvidia_icds() {
  local file name
  for file in "$driver_host"/{etc,usr/local/share,usr/share,run/opengl-driver/share}/vulkan/icd.d/*
  do
    case $file in *i[36]86*) continue ;; */*nvidia*.json) ;; *) continue ;; esac
    name=$(sed -n 's/.*"library_path"[^"]*"\([^"]*\)".*/\1/p' "$file" 2>/dev/null | head -n 1)
    name=${name##*/}
    if [ -n "$name" ] && [ -n "${driver_libraries[$name]:-}" ]; then
      sed "s|\(\"library_path\"[^\"]*\"\)[^\"]*\"|\1$1/lib/$name\"|" "$file" |
        driver_keep "$2/nvidia_icd.json"
      driver_args+=(--ro-bind "$2/nvidia_icd.json" "$1/nvidia_icd.json"
        --setenv VK_ADD_DRIVER_FILES "$1/nvidia_icd.json")
      found+=(Vulkan)
      break
    fi
  done
  [ -n "${driver_libraries[libnvidia-opencl.so.1]:-}" ] || return 0
  printf '%s\n' "$1/lib/libnvidia-opencl.so.1" | driver_keep "$2/nvidia.icd"
  driver_args+=(--ro-bind "$2/nvidia.icd" "$1/opencl/nvidia.icd"
    --setenv OCL_ICD_VENDORS "$1/opencl")
  found+=(OpenCL)
}

driver_nvidia_nodes_there() {
  [ -e "$driver_host/dev/nvidiactl" ] && [ -e "$driver_host/dev/nvidia-uvm" ]
}

# The driver makes its device files only when a program of root's asks. In the root it is too late.
driver_nvidia_nodes() {
  local tool node
  if ! driver_nvidia_nodes_there && tool=$(driver_tool nvidia-modprobe); then
    "$tool" -c 0 -u >/dev/null 2>&1 || true
  fi
  driver_nvidia_nodes_there ||
    driver_notes+=("NVIDIA: /dev/nvidiactl or /dev/nvidia-uvm is missing;"\
" mend: sudo nvidia-modprobe -c 0 -u")
  for node in "$driver_host"/dev/nvidia*; do driver_node_check "$node"; done
}

driver_nvidia() {
  local version='' place kept name file other='' n_files=0 found=() words
  read -r version 2>/dev/null <"$driver_host/sys/module/nvidia/version" || true
  case $version in '' | *[!0-9.]*) return 0 ;; esac
  driver_nvidia_libraries "$version"
  if [ $n_files = 0 ]; then
    words="install the libraries of its very version"
    [ -z "$other" ] || words="the host's libraries are $other: restart the machine"
    driver_notes+=("NVIDIA $version: the kernel runs it, but none of its libraries is there;"\
" mend: $words")
    return 0
  fi
  # the version is part of the name: what is remembered of devices is keyed by it
  place=/run/medley-driver/nvidia-$version kept=$driver_kept/nvidia-$version
  driver_args+=(--tmpfs /run/medley-driver)
  for name in "${!driver_libraries[@]}"; do
    driver_args+=(--ro-bind "$driver_host${driver_libraries[$name]}" "$place/lib/$name")
  done
  driver_nvidia_icds "$place" "$kept"
  driver_path=$place/lib
  words="NVIDIA $version: $n_files libraries of the host"
  [ -n "${driver_libraries[libcuda.so.1]:-}" ] || words+="; without CUDA (libcuda.so.1)"
  case " ${found[*]} " in
    *" Vulkan "*) ;;
    *)
      words+="; without Vulkan: the host has no nvidia_icd.json; mend: install the driver's package"
      words+=" for Vulkan" ;;
  esac
  driver_notes+=("$words")
  driver_nvidia_nodes
}

# ---- AMD, Intel, Windows below -------------------------------------------------------------------

# driver_node_check FILE: notes a device file that this user may not use, and what mends it.
driver_node_check() {
  local group words node=${1#"$driver_host"}
  if [ ! -e "$1" ] || [ -d "$1" ] || { [ -r "$1" ] && [ -w "$1" ]; }; then return 0; fi
  group=$(stat -c %G "$1")
  words="sudo usermod -aG $group \"\$USER\", then log in again"
  case $group in
    root | UNKNOWN) words="sudo chgrp render $node && sudo chmod 660 $node" ;;
  esac
  driver_notes+=("no permission to use $node; mend: $words")
}

driver_mesa() {
  local node vendor
  for node in "$driver_host"/dev/dri/renderD*; do
    [ -e "$node" ] || continue
    read -r vendor 2>/dev/null <"$driver_host/sys/class/drm/${node##*/}/device/vendor" || vendor=
    case $vendor in
      0x1002) vendor=AMD ;;
      0x8086) vendor=Intel ;;
      0x10de)
        [ ! -e "$driver_host/sys/module/nvidia/version" ] || continue
        vendor='NVIDIA (nouveau)' ;;
      *) vendor='a GPU' ;;
    esac
    driver_notes+=("$vendor: ${node#"$driver_host"}, by the root's own Mesa")
    driver_node_check "$node"
  done
  driver_node_check "$driver_host/dev/kfd"
}

driver_wsl() {
  local files
  [ -e "$driver_host/dev/dxg" ] || return 0
  if [ ! -d "$driver_host/usr/lib/wsl/lib" ]; then
    driver_notes+=("WSL2: /dev/dxg is there, but not /usr/lib/wsl/lib;"\
" mend, in Windows: wsl --update")
    return 0
  fi
  files=("$driver_host"/usr/lib/wsl/lib/*.so*)
  driver_args+=(--ro-bind "$driver_host/usr/lib/wsl" /usr/lib/wsl)
  driver_path=${driver_path:+$driver_path:}/usr/lib/wsl/lib
  driver_notes+=("WSL2: ${#files[@]} libraries of the host, for CUDA alone")
  driver_node_check "$driver_host/dev/dxg"
}

# ---- all of it -----------------------------------------------------------------------------------

# driver_find: fills driver_args and driver_notes. Changes nothing but files below $driver_kept and,
# by the host's nvidia-modprobe, NVIDIA's device files.
driver_find() {
  local driver_path='' text
  driver_args=() driver_notes=() driver_libraries=()
  driver_nvidia
  driver_mesa
  driver_wsl
  [ -z "$driver_path" ] || driver_args+=(--setenv LD_LIBRARY_PATH "$driver_path")
  [ ${#driver_notes[@]} != 0 ] || return 0
  text=$(printf '%s\n' "${driver_notes[@]}")
  driver_args+=(--setenv MEDLEY_HOST_DRIVER "$text")
  driver_say "$text"
}

# Said when it differs from what was said last.
driver_say() { # TEXT
  local line
  [ "$1" != "$(cat "$driver_kept/said" 2>/dev/null)" ] || return 0
  while read -r line; do say "$line"; done <<<"$1"
  printf '%s\n' "$1" | driver_keep "$driver_kept/said"
}
