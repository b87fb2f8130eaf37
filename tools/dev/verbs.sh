# What ./dev can do. One function a verb; sourced by ./dev. Testing and fuzzing are in testing.sh.

verb_help() {
  cat <<'TEXT'
usage: ./dev VERB [...]

  demo                     build, then run the bundled model split over two unlike devices
  cluster-demo [ASK]       build, then four unlike (simulated) machines, as four real nodes, share
                           the model
  test [NAME...]           build and run the tests; the last line is `N passed, N failed`
  medley ...               build what changed and run the medley binary
  build [clang]            build only, into build/release; or all of it with clang, into build/clang
  bench [CLAIM...]         compare with llama.cpp from Debian sid (minutes; `./dev bench --help`)
  chaos [MODE]             real nodes under faults that a seed draws, every stream compared
                           (`./dev chaos --help`)
  attack [NAME...]         attacks on the running program, in their long forms (minutes)
  arm [--slow | NAME...]   build for 64-bit ARM, run the fast tests in an emulator, or the slow
                           ones, or those named (many minutes)
  musl [FILE...]           compile all sources against another C library's headers (minutes)
  macos [FILE...]          compile them for macOS, as far as that goes without Apple's headers
  fuzz [TARGET] [SECONDS]  run one fuzz target, or list them
  coverage [TEST...]       run all tests and report which lines they reach; or add these tests to
                           what was counted before (--fresh: forget that first; --report: run none)
  format                   clang-format every C file
  shell [CMD...]           a shell, or CMD, inside the environment
  anchor [CMD...]          the same beside Debian sid's llama.cpp
  release [--check]        a bundle for other Linux systems and a .deb, in build/release-files;
                           --check installs it in bare roots of four Debians, --twice compares it
                           with a second build, --sign KEY signs it, --arch aarch64 makes it for
                           that processor, by a cross compiler and an emulator (minutes)
  package-deb              the same as a package of Debian, in build/deb (docs/packages.md)
  package-check            makes it, runs lintian, installs, upgrades, removes and purges it; then
                           piuparts (root)
  recipe-check             makes the packages for RPM, Arch and Nix by their own tools, installs,
                           upgrades, uses and removes them; runs Homebrew's formula (root)
  image [--mesa]           the bundle as an image for containers, in build/image, started here (root);
                           --mesa: with the drivers of AMD's and Intel's GPUs
  upgrade-check [COMMIT]   two machines under systemd, upgraded by package from the last release's, or
                           that commit's, while a reply runs (root)
  service-check            `medley service` under a real systemd, in namespaces of its own (root)
  driver-check             a made-up GPU driver on a made-up host, used in the private root
  train-demo               train models/demo.gguf anew (tools/demo-model)
  install                  put `medley` on the path
  clean [--all]            remove build/; with --all also the private roots and caches
TEXT
}

release_dir=$repo/build/release

# ---- building ---------------------------------------------------------------------------------

# The npm packages that the build embeds and the tests use, exactly as package-lock.json names them.
npm_prepare() {
  [ -f "$repo/package-lock.json" ] || return 0
  local stamp=$repo/node_modules/.medley-lock key
  key=$(sha256sum <"$repo/package-lock.json")
  [ "$(cat "$stamp" 2>/dev/null)" != "$key" ] || return 0
  say "fetching the npm packages of package-lock.json (seconds, once)"
  quietly inside npm ci --no-audit --no-fund || die "npm ci failed: is there a network?"
  printf '%s\n' "$key" >"$stamp"
}

# build_in NAME [MESON-OPTION...]: configures build/NAME once and builds what changed (of
# build_targets, if set).
build_targets=()
build_in() {
  local name=$1 dir=$repo/build/$1 fresh=
  shift
  mkdir -p "$repo/build"
  [ -f "$dir/build.ninja" ] || fresh=yes
  (
    flock -n 8 || { say "waiting for another ./dev that is building build/$name"; flock 8; }
    if [ -n "$fresh" ]; then
      say "building medley into build/$name (about a minute, once)"
      quietly inside meson setup "$dir" "$repo" "$@" || { rm -rf "$dir"; exit 1; }
    fi
    with_progress "$dir.log" inside ninja -C "$dir" "${build_targets[@]}" ||
      {
        if grep -q '^FAILED' "$dir.log"; then
          sed -n '/^FAILED/,$p' "$dir.log"
        else
          cat "$dir.log"
        fi | tail -n 60 >&2
        exit 1
      }
  ) 8>"$repo/build/.$name.lock" || { say "building build/$name failed"; return 1; }
}

build_release() {
  env_prepare
  npm_prepare
  build_in release
}

verb_build() { # [clang]
  case ${1:-} in
    '') build_release ;;
    clang) env_prepare && npm_prepare && build_in clang --native-file tools/dev/clang.ini ;;
    *) die "./dev build [clang]: $1 is no compiler that is tried here" ;;
  esac
}

# ---- running ----------------------------------------------------------------------------------

# Where a person called ./dev from, as far as the environment can see that folder.
enter_user_dir() {
  case $user_dir/ in
    /bin/* | /dev/* | /etc/* | /lib*/* | /proc/* | /sbin/* | /sys/* | /usr/*) ;;
    /var/* | /run/*) extra_binds+=("$user_dir"); cd "$user_dir" ;;
    *) cd "$user_dir" ;;
  esac
}

verb_medley() {
  env_prepare
  npm_prepare
  build_targets=(src/cli/medley)
  if ! inside ninja -C "$release_dir" -n "${build_targets[@]}" 2>/dev/null |
    grep -q 'no work to do'; then
    build_in release
  fi
  bind_user_folders
  enter_user_dir
  inside "$release_dir/src/cli/medley" "$@"
}

verb_demo() { # [WHAT TO ASK FOR]
  build_targets=(src/cli/medley)
  build_release
  [ -f models/demo.gguf ] || die "models/demo.gguf is missing: is the clone whole?"
  if [ ! -d "$cache/shaders" ]; then
    mkdir -p "$cache/shaders"
    say "the first run compiles shaders for the software GPU: about 20 seconds, once"
  fi
  local ask=${1:-Tell me a story about a fox and a lantern.}
  say "models/demo.gguf has 5 layers: 3 on the CPU, 2 on Mesa's software GPU (Vulkan). It is asked:"
  printf '\n> %s\n\n' "$ask" >&2
  # Without this variable ggml hides a Vulkan device that is only software.
  inside env GGML_VK_VISIBLE_DEVICES=0 "$release_dir/src/cli/medley" run models/demo.gguf \
    --devices cpu,vulkan0 --split 3,2 --seed "$RANDOM" -p "$ask" -n 400 </dev/null
}

verb_cluster_demo() { # [WHAT TO ASK FOR]
  build_targets=(src/cli/medley)
  build_release
  inside bash tools/dev/cluster_demo.sh "$release_dir/src/cli/medley" models/demo.gguf \
    "$repo/build/cluster-demo" "$@"
}

verb_shell() {
  env_prepare
  if [ $# = 0 ]; then set -- bash; fi
  inside "$@"
}

# ./dev anchor CMD...: runs CMD beside llama.cpp, as Debian sid packages it.
verb_anchor() {
  local dir
  dir=$(root_for sid "$repo/tools/anchor-packages.txt")
  if [ $# = 0 ]; then set -- bash; fi
  bind_user_folders
  root_enter "$dir" "$@"
}

# ---- the source tree -----------------------------------------------------------------------------

c_files() { # every C file of ours, NUL between
  find src tools tests bench include examples -name '*.[ch]' -print0 2>/dev/null
}

verb_format() {
  env_prepare
  c_files | inside xargs -0 clang-format -i
}

verb_install() {
  if on_debian_13; then
    build_release
    as_root meson install -C "$release_dir" --no-rebuild
    return
  fi
  local bin=$HOME/.local/bin
  say "medley's libraries are not on this machine (it is not Debian 13), so the binary cannot run" \
    "on its own;"
  say "installing a small script instead that runs it in its environment: $bin/medley"
  build_release
  mkdir -p "$bin"
  printf '#!/bin/sh\nexec %q medley "$@"\n' "$repo/dev" >"$bin/medley"
  chmod +x "$bin/medley"
  case :$PATH: in *":$bin:"*) ;; *) say "note: $bin is not on your PATH" ;; esac
}

verb_train_demo() {
  local dir
  dir=$(root_for trixie "$repo/tools/demo-model/packages.txt")
  root_enter "$dir" python3 tools/demo-model/make.py "$@"
}

verb_clean() {
  case ${1:-} in
    '') rm -rf "$repo/build" ;;
    --all)
      rm -rf "$repo/build" "$repo/node_modules"
      rm -rf --one-file-system "$cache"
      say "removed build/, node_modules/ and $cache" ;;
    *) die "clean knows only --all" ;;
  esac
}
