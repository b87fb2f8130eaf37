# ./dev arm: Medley for 64-bit ARM, cross-compiled in a root of its own, its programs run by QEMU's
# user mode (arm_run.sh). Sourced by ./dev after testing.sh.

# Not among the fast tests: what computes for a minute or more under the emulator, what counts on a
# processor's speed (carrier, runner_cache), and what docs/platforms.md says fails there.
arm_left_out=' attention audit backends carrier cluster_commands cluster_run cluster_sim commands
 completion drafts driver_golden driver_memory golden host-driver placement_oracle
 placement_replan_random placing plan precision_figures replica_random runner_cache same_bits stage
 store_power thermal_governor weight_stream command_words hardware_report own_node pool_attention '

# Prints the fast tests: of suite unit, those that do not wait for clocks and need no GPU.
arm_tests() {
  local name
  inside meson test -C "$repo/build/arm" --no-rebuild --list --suite unit --no-suite waits \
    2>/dev/null </dev/null | sed -n 's|.* / ||p' | sort -u | while read -r name; do
    case $name in *_vulkan | golden_more) continue ;; esac
    case " ${arm_left_out//$'\n'/ } " in *" $name "*) ;; *) printf '%s\n' "$name" ;; esac
  done
}

# The bundled model's words on the processor at hand.
arm_words() { # CMD before the program, PROGRAM
  inside "$@" run models/demo.gguf --devices cpu --seed 7 -n 120 -p "Tell me about a fox." \
    2>/dev/null </dev/null
}

# Fails unless build/release says the same. Runs first: ./dev's own root is entered for it.
arm_words_here() {
  [ "$(uname -m)" = x86_64 ] || die "./dev arm is for machines that are not ARM; there: ./dev test"
  build_targets=(src/cli/medley)
  build_release
  arm_words build/release/src/cli/medley
}

arm_compare() { # WORDS
  local words
  words=$(arm_words bash tools/dev/arm_run.sh build/arm/src/cli/medley) || die "medley failed"
  [ "$words" = "$1" ] || die "the demo's words differ from this processor's: $words"
  say "the demo's text is the same as on this processor"
}

# What follows happens in a root of its own, also on Debian 13.
arm_enter() { # [LIST...] of packages that it has besides
  on_debian_13() { false; }
  root_options=(--architectures=amd64,arm64)
  root=$(root_for trixie "$repo/tools/arm-packages.txt" "$@")
}

# Goes on after a failure; the last line is `N passed, N failed`, as that of `./dev test`.
verb_arm() { # [--slow | TEST...]
  local names=("$@") words=
  case ${1:-} in
    '') words=$(arm_words_here) ;;
    --slow) names=($arm_left_out) ;;
  esac
  arm_enter
  npm_prepare
  build_targets=()
  build_in arm --cross-file tools/dev/aarch64.ini
  [ $# != 0 ] || { arm_compare "$words" && mapfile -t names < <(arm_tests); }
  rm -f build/arm/meson-logs/testlog.json
  inside bash tools/dev/arm_run.sh meson test -C build/arm --no-rebuild --print-errorlogs \
    --timeout-multiplier 6 "${names[@]}" </dev/null || true # count_tests.py judges
  inside python3 tools/dev/count_tests.py build/arm/meson-logs/testlog.json
}
