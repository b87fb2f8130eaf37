# `./dev bench`: Medley beside llama.cpp, one function a claim. Sourced by ./dev.
#
# Both run on the same machine in the same run, taking turns, round after round; bench/summary.py prints the
# medians and their ratio. Each side runs in its own Debian root: ours with the build, theirs with Debian
# sid's llama.cpp. Results are also kept as JSON lines in build/bench/results.jsonl.

bench_claims=(membw decode prefill streams streams_64 spin split pages first_token memory devices forecast homes
  cluster_half cluster_prefill cluster_chain cluster_drafts cluster_join cluster_load cluster_rest cluster_unlike cluster_wire cluster_tls)
bench_alone=" membw split pages devices forecast homes cluster_prefill cluster_join cluster_load cluster_rest cluster_unlike cluster_wire cluster_tls " # these need no llama.cpp

bench_help() {
  cat <<'TEXT'
usage: ./dev bench [--rounds N] [--threads N] [--types "q4_0 q8_0 q4_k"] [CLAIM...]

Compares Medley with llama.cpp (Debian sid) on synthetic 1.1-billion-weight models. Claims (default: all):
  membw        how fast memory can be read: the limit of decoding
  decode       tg128, one sequence                 llama-bench
  prefill      pp512                               llama-bench
  streams      8 streams at once over HTTP         llama-server, 8 slots
  streams_64   64 of them                          llama-server, 64 slots
  spin         decode while another process spins  llama-bench
  split        2 CPU stages against 1              (Medley alone)
  pages        decode, pages of 2 MiB              4 KiB, scattered
  first_token  from start to first token           llama-completion
  memory       peak memory of the server, Q8_0     llama-server
  devices      copies and queued operations        memcpy, ggml alone
  forecast     medley run's forecast, 20 sets of simulated devices: 4 minutes  what it then measures
  homes        predicted tok/s on 1,000 homes      others' ways to split a model
  cluster      all of these, real nodes in network namespaces (needs root), 1 thread each, 25 minutes:
    cluster_half    2 nodes, half each, 0.25 ms    one node alone; llama.cpp over RPC
    cluster_prefill 512 tokens, 2 nodes, a core each  one node
    cluster_chain   3 nodes, small model, 2 ms     llama.cpp over RPC
    cluster_drafts  the same, guessed tokens       without; llama.cpp over RPC
    cluster_join    start to joined                (Medley alone)
    cluster_load    weights to a node without them a bare TCP connection
    cluster_rest    processor, memory, bytes of a node at rest  (Medley alone)
    cluster_unlike  2 unlike simulated devices, 8 streams  the better one alone
    cluster_wire    bytes on the network           those of the hidden states
    cluster_tls     what a link costs              a bare TCP connection
Timings mean something only while nothing else runs.
TEXT
}

bench_dir=$repo/build/bench
bench_rounds=5
bench_threads=2
bench_types="q4_0 q8_0 q4_k"

ours() { inside "$@"; }
theirs() { root_enter "$anchor_root" "$@"; }

bench_model() { # type -> path, made if need be
  local model=$repo/build/models/synth-1b-$1.gguf
  if [ ! -f "$model" ]; then
    mkdir -p "$repo/build/models"
    say "writing $model"
    inside "$release_dir/tools/synth-model" --type "$1" "$model.part" && mv "$model.part" "$model"
    sync "$model"
  fi
  # Into the page cache, as both sides should find it. Written pages stay small; read anew they are
  # large ones, and so faster to go through (docs/performance.md, "Pages").
  dd if="$model" iflag=nocache count=0 status=none
  cat "$model" >/dev/null
  printf '%s\n' "$model"
}

# record CLAIM MODEL SIDE: reads numbers, one a line, and keeps them. None is a failure, which
# verb_bench tells at the end: it runs in a pipe, and the claim goes on with the next round.
record() {
  local value n=0
  while read -r value; do
    n=$((n + 1))
    printf '{"claim": "%s", "model": "%s", "side": "%s", "value": %s}\n' "$1" "$2" "$3" "$value" |
      tee -a "$bench_dir/run.jsonl" >>"$bench_dir/results.jsonl"
    say "  $1 $2 $3: $value"
  done
  [ $n != 0 ] || without_figure "$1 ($2, $3)"
}

without_figure() {
  say "  $1: NO FIGURE"
  printf '%s\n' "$1" >>"$bench_dir/without.txt"
}

tokens_per_second() { # reads the JSON of `medley bench --json` or `llama-bench -o json`
  inside python3 -c 'import json, sys
for test in json.load(sys.stdin):
    print(test.get("tokens_per_s") or test.get("avg_ts"))'
}

medley_bench() { # model, options
  local model=$1
  shift
  ours "$release_dir/src/cli/medley" bench "$model" -t "$bench_threads" -r 1 --json "$@" | tokens_per_second
}

llama_bench() {
  local model=$1
  shift
  theirs llama-bench -m "$model" -t "$bench_threads" -r 1 -o json "$@" 2>/dev/null | tokens_per_second
}

# alternate CLAIM OPTIONS...: both sides in turn, for each model.
alternate() {
  local claim=$1 type model round
  shift
  for type in $bench_types; do
    model=$(bench_model "$type")
    for ((round = 0; round < bench_rounds; round++)); do
      llama_bench "$model" "$@" | record "$claim" "$type" llama.cpp
      medley_bench "$model" "$@" | record "$claim" "$type" medley
    done
  done
}

claim_membw() { ours "$release_dir/bench/membw" --threads "$bench_threads"; }
# A software Vulkan device twice, so that there are two of a kind on any machine.
claim_devices() { ours env GGML_VK_VISIBLE_DEVICES=0,0 "$release_dir/bench/device_speed" --rounds $((bench_rounds * 5)); }
# One thread a device: devices that work at the same time share the cores.
claim_forecast() {
  bench_model q4_0 >/dev/null
  bench_model q8_0 >/dev/null
  ours python3 bench/forecast.py --medley "$release_dir/src/cli/medley" --json "$bench_dir/forecast.jsonl"
}
claim_homes() {
  ours "$release_dir/bench/homes" --csv "$bench_dir/homes.csv" || return
  ours python3 bench/plots/homes.py "$bench_dir/homes.csv" "$bench_dir/homes.png" || return
  say "each home is in build/bench/homes.csv, the plot in build/bench/homes.png"
}
claim_decode() { alternate decode -p 0 -n 128; }
claim_prefill() { alternate prefill -p 512 -n 0; }

# While a shell spins on one core (not pinned: the kernel decides whom it disturbs).
claim_spin() {
  local status=0
  alternate spin_idle -p 0 -n 32
  (while :; do :; done) &
  spinner=$!
  trap 'kill "$spinner" 2>/dev/null' EXIT # also when somebody interrupts
  alternate spin_busy -p 0 -n 32 || status=$?
  kill "$spinner"
  trap - EXIT
  wait "$spinner" 2>/dev/null || true
  return $status
}

claim_split() {
  local type model round
  for type in $bench_types; do
    model=$(bench_model "$type")
    for ((round = 0; round < bench_rounds; round++)); do
      medley_bench "$model" -p 0 -n 64 | record split "$type" one-stage
      medley_bench "$model" -p 0 -n 64 --devices cpu --split 8,8 | record split "$type" medley
    done
  done
}

# The same file, once written so that it lies in small pages of memory, once read anew by Medley.
claim_pages() {
  local type model small round
  for type in $bench_types; do
    model=$(bench_model "$type")
    small=$repo/build/models/scattered.gguf
    ours python3 bench/scatter.py "$model" "$small"
    dd if="$model" iflag=nocache count=0 status=none
    medley_bench "$model" -p 0 -n 1 >/dev/null
    for ((round = 0; round < bench_rounds; round++)); do
      medley_bench "$small" -p 0 -n 48 | record pages "$type" scattered
      medley_bench "$model" -p 0 -n 48 | record pages "$type" medley
    done
    rm "$small"
  done
}

claim_first_token() {
  local type model round
  local options=(-t "$bench_threads" -n 1 -c 4096 --temp 0 -p "bake lodo")
  for type in $bench_types; do
    model=$(bench_model "$type")
    for ((round = 0; round < bench_rounds; round++)); do
      theirs python3 bench/first_token.py --prompt "bake lodo" --side llama.cpp -- llama-completion -m "$model" \
        -no-cnv "${options[@]}" | record_lines "$type"
      ours python3 bench/first_token.py --prompt "bake lodo" --side medley -- "$release_dir/src/cli/medley" run \
        "$model" "${options[@]}" | record_lines "$type"
    done
  done
}

medley_server() { # model, slots, context per slot: the command
  echo "$release_dir/src/cli/medley" serve "$1" --api 127.0.0.1:@PORT@ -t "$bench_threads" --slots "$2" -c "$3"
}

llama_server() {
  echo llama-server -m "$1" --host 127.0.0.1 --port @PORT@ -t "$bench_threads" -np "$2" -c $(($2 * $3)) --no-webui
}

claim_streams() { streams_turns streams 8; }
claim_streams_64() { streams_turns streams_64 64; }

streams_turns() { # CLAIM COUNT
  local claim=$1 n=$2 type model round
  for type in $bench_types; do
    model=$(bench_model "$type")
    for ((round = 0; round < bench_rounds; round++)); do
      theirs python3 bench/server.py streams --count "$n" -- $(llama_server "$model" "$n" 512) |
        record "$claim" "$type" llama.cpp
      ours python3 bench/server.py streams --count "$n" -- $(medley_server "$model" "$n" 512) |
        record "$claim" "$type" medley
    done
  done
}

claim_memory() {
  local model
  model=$(bench_model q8_0)
  theirs python3 bench/server.py memory -- $(llama_server "$model" 1 4096) |
    record memory q8_0 llama.cpp
  ours python3 bench/server.py memory -- $(medley_server "$model" 1 4096) |
    record memory q8_0 medley
}

# ---- a cluster: cluster.py makes networks, starts nodes and prints `CLAIM SIDE VALUE` ----------------------------

record_lines() { # MODEL
  local claim value line n=0
  while read -r line; do
    n=$((n + 1))
    claim=${line%% *} value=${line##* } line=${line#* }
    record "$claim" "$1" "${line% *}" <<<"$value"
  done
  [ $n != 0 ] || without_figure "$claim_now ($1)"
}

cluster_turns() { # PART MODEL SIDE...: each side in turn, round after round; llama.cpp in its own root
  local part=$1 model=$2 round side
  shift 2
  for ((round = 0; round < bench_rounds; round++)); do
    for side in "$@"; do
      if [ "$side" = llama.cpp ]; then
        theirs python3 bench/cluster.py "$part" "$side" | record_lines "$model"
      else
        ours python3 bench/cluster.py "$part" "$side" | record_lines "$model"
      fi
    done
  done
}

claim_cluster_half() {
  bench_model q4_0 >/dev/null
  cluster_turns half q4_0 llama.cpp medley
}

claim_cluster_prefill() {
  bench_model q4_0 >/dev/null
  ours python3 bench/cluster.py prefill medley --pin --model synth-1b-q4_0.gguf --layers 8,8 --turns "$bench_rounds" |
    record_lines q4_0
}

bench_small_model() {
  local model=$repo/build/models/synth-small-q4_0.gguf
  [ -f "$model" ] || ours "$release_dir/tools/synth-model" --type q4_0 --layers 12 --embd 512 --ff 2048 --heads 8 \
    --kv-heads 4 --vocab 8000 "$model"
}

claim_cluster_chain() {
  bench_small_model
  cluster_turns chain small llama.cpp medley
}

claim_cluster_drafts() {
  bench_small_model
  theirs python3 bench/cluster.py chain llama.cpp | record_lines small
  ours python3 bench/cluster.py drafts medley --turns "$bench_rounds" --tokens 300 --context 512 | record_lines small
}

claim_cluster_join() { cluster_turns join none medley; }

claim_cluster_load() {
  bench_model q8_0 >/dev/null
  cluster_turns load q8_0 medley
}

claim_cluster_rest() { ours python3 bench/cluster.py rest medley | record_lines none; }

claim_cluster_unlike() {
  bench_model q4_0 >/dev/null
  cluster_turns unlike q4_0 best medley
}

claim_cluster_wire() {
  bench_model q4_0 >/dev/null
  ours python3 bench/cluster.py wire medley | record_lines q4_0
}

claim_cluster_tls() { ours "$release_dir/bench/link"; }

bench_number() { # option, value
  [[ $2 =~ ^[1-9][0-9]*$ ]] || die "$1 takes a number from 1 on, not '$2'"
  printf '%s\n' "$2"
}

verb_bench() {
  local claims=()
  while [ $# != 0 ]; do
    case $1 in
      --help | -h) bench_help; return ;;
      --rounds) bench_rounds=$(bench_number "$1" "${2:-}"); shift ;;
      --threads) bench_threads=$(bench_number "$1" "${2:-}"); shift ;;
      --types) bench_types=${2:-}; shift ;;
      *)
        if [ "$1" = cluster ]; then
          claims+=($(printf '%s\n' "${bench_claims[@]}" | grep '^cluster_'))
          shift
          continue
        fi
        [[ " ${bench_claims[*]} " == *" $1 "* ]] || die "no claim '$1': there are ${bench_claims[*]}"
        claims+=("$1") ;;
    esac
    shift
  done
  [ ${#claims[@]} != 0 ] || claims=("${bench_claims[@]}")
  build_release
  local claim failed=()
  for claim in "${claims[@]}"; do
    if [[ $bench_alone != *" $claim "* ]]; then
      anchor_root=$(root_for sid "$repo/tools/anchor-packages.txt")
      break
    fi
  done
  mkdir -p "$bench_dir"
  : >"$bench_dir/run.jsonl"
  : >"$bench_dir/without.txt"
  for claim in "${claims[@]}"; do
    say "$claim"
    claim_now=$claim
    "claim_$claim" || failed+=("$claim")
  done
  inside python3 bench/summary.py "$bench_dir/run.jsonl"
  mapfile -t -O ${#failed[@]} failed < <(sort -u "$bench_dir/without.txt")
  [ ${#failed[@]} = 0 ] || die "could not be measured:" "${failed[@]/%/;}"
}
