# Tests, sanitizers, fuzzing, coverage. Sourced by ./dev after verbs.sh.

# Two builds run the tests: `release` as users get it, `asan` with the address and
# undefined-behaviour sanitizers; there without the style checks, which do not depend on the build.
test_build() { # NAME -> builds it
  case $1 in
    release) build_in release ;;
    asan) build_in asan -Doptimization=1 -Db_sanitize=address,undefined -Db_lundef=false \
      -Dc_args=-g1 ;; # lines and functions, which is what their reports show
  esac
}

sanitizer_settings=(
  "ASAN_OPTIONS=abort_on_error=1:detect_stack_use_after_return=1:allocator_may_return_null=1"
  "UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1"
  "LSAN_OPTIONS=suppressions=$repo/tests/leaks-of-drivers.supp:print_suppressions=0"
)

# What tests wait for, and how many wait at a time, follows how slow the machine is; it is looked at
# once.
machine_slowness() { # -> slowness
  local medley=$repo/build/release/src/cli/medley
  [ -z "${slowness:-}" ] || return 0
  slowness=1
  [ ! -x "$medley" ] ||
    slowness=$(inside env GOMP_SPINCOUNT=100 python3 tools/dev/slowness.py "$medley" </dev/null) ||
    slowness=1 # it does not start: tests will tell
  say "processes start $slowness times as slowly as usual"
}

scaled() { awk "BEGIN { print $1 * $2 }"; }

meson_tests() { # NAME OPTION|TEST... ; what ran is in build/NAME/meson-logs/LOGBASE.json
  local name=$1 longer=4
  shift
  [ "$name" != release ] || longer=1
  inside env "${sanitizer_settings[@]}" MEDLEY_SLOWNESS="$slowness" \
    nice -n "${test_niceness:-0}" meson test -C "$repo/build/$name" --no-rebuild \
    --print-errorlogs --timeout-multiplier "$(scaled $longer "$slowness")" "$@" </dev/null
}

waiting_processes() { # -> how many: four a processor, two where it is slow
  awk "BEGIN { print $(nproc) * ($slowness > 2 ? 2 : 4) }"
}

# All tests of a build, on two lanes at a time. Tests that compute run one a processor. Those that
# wait most of their time (suite `waits`) run beside them, some a processor, with the first claim to
# it because they watch the clock; their lines are shown when they are through.
run_all_tests() { # NAME
  local name=$1 out=$repo/build/$1.waits.log status=0 others=() waiting
  [ "$name" = release ] || others=(--no-suite style)
  set -m # a process group of its own, so that all of it can be stopped
  meson_tests "$name" --logbase waits --suite waits "${others[@]}" \
    --num-processes "$(waiting_processes)" \
    >"$out" 2>&1 &
  waiting=$!
  set +m
  trap 'kill -TERM -- "-$waiting" 2>/dev/null; wait "$waiting"; die "stopped"' INT TERM HUP PIPE
  test_niceness=5 meson_tests "$name" --no-suite waits "${others[@]}" || status=1
  wait "$waiting" || status=1
  trap - INT TERM HUP PIPE
  say "and those of build/$name that wait, which ran beside them"
  cat "$out"
  [ $status = 0 ] || run_again "$name"
  return $status
}

# What waits watches the clock, and a machine that stands still for seconds fails it. So these, if
# they are few, run once more with nothing beside them; count_tests.py names each and counts what it
# did then. Tests that compute have no such excuse.
run_again() { # NAME -> adds to again_logs
  local logs=$repo/build/$1/meson-logs failed
  mapfile -t failed < <(inside python3 "$repo/tools/dev/count_tests.py" --failed \
    "$logs/waits.json" </dev/null)
  [ ${#failed[@]} -gt 0 ] && [ ${#failed[@]} -le 8 ] || return 0
  say "once more and alone: ${failed[*]}"
  again_logs+=("$logs/again.json")
  meson_tests "$1" --logbase again --suite waits --num-processes 1 "${failed[@]}" || true
}

# Those named run as they are, in both builds.
run_tests() { # NAME [TEST...] -> adds to test_logs
  local name=$1 logs=$repo/build/$1/meson-logs
  rm -f "$logs/testlog.json" "$logs/waits.json" "$logs/again.json"
  test_logs+=("$logs/testlog.json")
  say "testing build/$name"
  machine_slowness
  if [ $# -gt 1 ]; then meson_tests "$@"; else
    test_logs+=("$logs/waits.json")
    run_all_tests "$name"
  fi
}

verb_test() {
  env_prepare
  npm_prepare
  local name status=0 broken=0 test_logs=() again_logs=()
  for name in release asan; do
    if ! test_build "$name"; then
      broken=$((broken + 1))
      continue
    fi
    run_tests "$name" "$@" || true # count_tests.py judges
  done
  # Last, so that its line is the last one; it fails when a test failed or none ran.
  inside python3 tools/dev/count_tests.py --broken $broken "${test_logs[@]}" \
    --again "${again_logs[@]}"
}

# clang's counters lie in a file that each process maps, not in its memory. So they also count in
# those that a signal or _exit() ends, and those that the sandbox keeps from every file. The file's
# name is in the program: the environment is not handed on to them. One a program, for all its runs.
coverage_build() {
  local counters="-fprofile-instr-generate=$repo/build/coverage/counts/%c%m.profraw"
  grep -q -e -fcoverage-mapping build/coverage/build.ninja 2>/dev/null ||
    rm -rf build/coverage # one of gcc's, from before
  build_in coverage --native-file tools/dev/clang.ini -Doptimization=1 \
    "-Dc_args=-w $counters -fcoverage-mapping -mllvm -runtime-counter-relocation" \
    "-Dc_link_args=$counters"
}

# What runs have counted, together: kept/all.profdata, and the names of their tests in
# kept/tests.txt. Counts of a function that has changed since are left out by llvm-cov.
coverage_keep() { # LOG...
  local build=build/coverage kept=build/coverage/kept more=()
  mkdir -p $kept
  find $build/counts -name '*.profraw' >$kept/counts.txt 2>/dev/null
  [ -s $kept/counts.txt ] || return 0
  [ ! -f $kept/all.profdata ] || more=($kept/all.profdata)
  inside llvm-profdata merge --sparse --failure-mode=all -f $kept/counts.txt "${more[@]}" \
    -o $kept/new.profdata || return 1
  inside python3 tools/dev/count_tests.py --names "$@" >>$kept/tests.txt
  mv $kept/new.profdata $kept/all.profdata
  rm -rf $build/counts
}

# Of the objects, not only of a program: which lacks what nothing in it calls.
coverage_report() { # FOLDER -> summary.json, index.html, not-run.txt
  local build=build/coverage counted
  mkdir -p "$1"
  mapfile -t counted < <(find $build/src/cli/medley.p $build/libmedley.a.p $build/src/kernels \
    -name '*.o' -printf '-object\n%p\n')
  inside llvm-cov export -summary-only -instr-profile $build/kept/all.profdata "${counted[@]:1}" \
    >"$1/summary.json" &&
    inside llvm-cov show -format=html -output-dir "$1" -instr-profile $build/kept/all.profdata \
      "${counted[@]:1}" -sources "$repo/src" || return 1
  inside meson test -C $build --no-suite style --list 2>/dev/null | sed -n 's|.* / ||p' |
    grep -vxFf $build/kept/tests.txt | sort -u >"$1/not-run.txt" || true
}

# ./dev coverage [--fresh] [TEST...]: what is named adds to what earlier runs counted; all tests
# begin anew. `--report` runs nothing.
verb_coverage() {
  local test_logs=() again_logs=() report=build/coverage/report fresh= only_report= floors=()
  case ${1:-} in
    '' | --fresh) fresh=yes ;;
    --report) only_report=yes ;;
  esac
  [ -z "$fresh$only_report" ] || [ $# = 0 ] || shift
  env_prepare
  npm_prepare
  if [ -z "$only_report" ]; then
    coverage_build || return 1
    [ -z "$fresh" ] || rm -rf build/coverage/counts build/coverage/kept
    run_tests coverage "$@" || say "some tests failed; the report counts what they reached"
    coverage_keep "${test_logs[@]}" || return 1
  fi
  coverage_report $report || return 1
  say "the lines themselves: $report/index.html"
  say "not in it: $(wc -l <$report/not-run.txt) tests, $report/not-run.txt"
  say "room by room (with all tests, and with --report: against tools/coverage-floors.txt)"
  [ $# != 0 ] || floors=(--floors tools/coverage-floors.txt) # floors are the whole suite's
  inside python3 tools/dev/coverage_rooms.py $report/summary.json "${floors[@]}"
}

# ./dev fuzz TARGET [SECONDS]: runs libFuzzer on one target; inputs that fail go to
# build/fuzz-finds/TARGET.
verb_fuzz() {
  local targets target=${1:-} seconds=${2:-60}
  targets=$(cd tests/fuzz && ls fuzz_*.c 2>/dev/null | sed 's/^fuzz_\(.*\)\.c$/\1/')
  if [ -z "$target" ]; then
    printf 'fuzz targets (./dev fuzz TARGET [SECONDS]):\n%s\n' "$targets"
    return 0
  fi
  printf '%s\n' "$targets" | grep -qxF -- "$target" ||
    die "no fuzz target '$target': there are $(echo $targets)"
  case $seconds in '' | *[!0-9]*) die "how many seconds? '$seconds' is not a number" ;; esac
  env_prepare
  npm_prepare
  build_targets=("tests/fuzz/fuzz-$target")
  build_in fuzz --native-file tools/dev/clang.ini -Dfuzz=true -Dc_args=-w -Doptimization=1 \
    -Db_sanitize=address,undefined -Db_lundef=false
  local finds=build/fuzz-finds/$target grown=build/fuzz-corpus/$target
  mkdir -p "$finds" "$grown" "tests/fuzz/corpus/$target"
  inside env "${sanitizer_settings[@]}" "build/fuzz/tests/fuzz/fuzz-$target" \
    -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -artifact_prefix="$finds/" \
    -print_final_stats=1 -verbosity=0 "$grown" "tests/fuzz/corpus/$target" ||
    die "the input that failed is in $finds"
  say "no input failed; what reached new code is in $grown"
}

# ./dev chaos [MODE] [OPTION...]: tests/chaos/chaos.py on the release build, or with
# CHAOS_BUILD=asan on that one.
# ./dev chaos memory [TRACES [FIRST-SEED [AT-ONCE]]]
# The second model's heads fit smaller caches.
chaos_memory() {
  local n=${2:-1000}
  inside "$1/tests/chaos/memory-traces" models/demo.gguf "${3:-1}" "$n" "${4:-16}" || return 1
  inside "$1/tests/chaos/memory-traces" tests/golden/models/llama-headdim.gguf "${3:-1}" \
    $(((n + 3) / 4)) "${4:-16}"
}

verb_chaos() {
  local build=build/${CHAOS_BUILD:-release} patience=1 clock=
  [ "${CHAOS_BUILD:-release}" = release ] || patience=4
  [ $patience != 1 ] || clock=$repo/$build/tests/cluster/libchaosclock.so
  env_prepare
  npm_prepare
  build_targets=(src/cli/medley bench/delay tests/cluster/libchaosclock.so)
  [ "${1:-}" != memory ] || build_targets=(tests/chaos/memory-traces)
  test_build "${CHAOS_BUILD:-release}" || return 1
  if [ "${1:-}" = memory ]; then
    chaos_memory "$build" "${@:2}"
    return
  fi
  inside env "${sanitizer_settings[@]}" PYTHONDONTWRITEBYTECODE=1 MEDLEY_PATIENCE=$patience \
    MEDLEY="$build/src/cli/medley" MEDLEY_MODEL=models/demo.gguf \
    CHAOS_SWITCH="$build/bench/delay" CHAOS_LOGS="$repo/build/chaos" \
    CHAOS_CLOCK_LIBRARY="$clock" \
    python3 tests/chaos/chaos.py "$@"
}

# ./dev attack [NAME...]: the long forms of tests/attack, on the release build or with
# ATTACK_BUILD=asan on that one, in a root that has Debian's attack tools beside everything else.
verb_attack() {
  local build=${ATTACK_BUILD:-release} patience=1 names=("$@") name status=0
  [ "$build" = release ] || patience=4
  [ $# != 0 ] || mapfile -t names < <(attack_names)
  for name in "${names[@]}"; do
    attack_names | grep -qxF -- "$name" || die "no attack '$name': there are" $(attack_names)
  done
  attack_prepare
  build_targets=(src/cli/medley)
  test_build "$build" || return 1
  for name in "${names[@]}"; do
    say "attack $name"
    inside env "${sanitizer_settings[@]}" PYTHONDONTWRITEBYTECODE=1 ATTACK_LONG=1 \
      MEDLEY_PATIENCE=$patience MEDLEY="build/$build/src/cli/medley" \
      MEDLEY_MODEL=models/demo.gguf timeout "${ATTACK_SECONDS:-900}" \
      python3 "tests/attack/$name.py" || { status=1; say "attack $name FAILED"; }
  done
  [ $status != 0 ] || say "${#names[@]} attacks, none of them hurt"
  return $status
}

# Programs only: attack.py is what they share.
attack_names() {
  (cd tests/attack && grep -l '^run(' ./*.py) | sed 's|^\./\(.*\)\.py$|\1|' | grep -v '^attack$'
}

# The tools are on this machine if it is Debian 13, else in a root of their own.
attack_prepare() {
  local list=$repo/tools/attack-packages.txt both
  cache_make
  if [ -n "${MEDLEY_INSIDE:-}" ]; then return 0; fi
  if ! on_debian_13; then root=$(root_for trixie "$packages_file" "$list"); return; fi
  both=$(mktemp)
  cat "$packages_file" "$list" >"$both"
  packages_file=$both host_prepare
  rm -f "$both"
}
