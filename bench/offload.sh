#!/bin/bash
# A dense model larger than its control group's memory: layers streamed from the disk beside
# llama.cpp's mapped file, in the same group, taking turns. llama.cpp would repack the weights into
# memory of its own, of which there is not enough, and is killed; `--repack 0` leaves them mapped.
#
#   sudo [DECODED=8] bench/offload.sh [ROUNDS]   (3; needs control groups of memory, and `./dev`)
#
# Writes a synthetic Q4_K model of 1.64 GiB to build/bench and limits memory to half of it. Before
# every run the file's pages are dropped. Prints tokens per second of both, medians and ratios.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3} model=build/bench/offload.gguf limit=$((860 << 20))
medley=build/release/src/cli/medley
threads=2 decoded=${DECODED:-8} prompt=64

mkdir -p build/bench
[ -f $model ] || ./dev shell build/release/tools/synth-model --type q4_k --layers 48 --embd 2048 \
  --ff 8192 --heads 32 --kv-heads 8 $model

group=/sys/fs/cgroup/memory/medley-offload-bench
file=memory.limit_in_bytes
if [ ! -d /sys/fs/cgroup/memory ]; then
  group=/sys/fs/cgroup/medley-offload-bench file=memory.max
fi
mkdir -p $group
trap 'rmdir $group' EXIT
echo $limit >$group/$file

drop_pages() {
  python3 -c '
import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
os.fsync(file)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)' $model
}

limited() { # CMD...: in the group; the speed is in the last row of the table that it prints
  local out=build/bench/offload.out
  drop_pages
  if (echo $BASHPID >$group/cgroup.procs && exec "$@") >$out 2>&1; then
    awk -F'|' '/ (tg|pp)[0-9]+ /{split($(NF - 1), speed, " "); print speed[1]}' $out
  else
    echo "failed: $*; its last words:" >&2
    tail -n 3 $out >&2
    return 1
  fi
}

median() { printf '%s\n' "$@" | sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

measure() { # NAME FLAG...
  local name=$1 ours=() theirs=()
  shift
  for ((i = 0; i < rounds; i++)); do
    theirs+=("$(limited ./dev anchor llama-bench -m $model -t $threads -r 1 -lm mmap \
      --repack 0 "$@")")
    ours+=("$(limited ./dev shell $medley bench $model -t $threads -r 1 "$@")")
  done
  printf '%s: medley %s, llama.cpp %s tok/s; medians %s and %s: %s\n' "$name" "${ours[*]}" \
    "${theirs[*]}" "$(median "${ours[@]}")" "$(median "${theirs[@]}")" \
    "$(awk "BEGIN {printf \"%.2fx\", $(median "${ours[@]}") / $(median "${theirs[@]}")}")"
}

measure "decode, tg$decoded" -p 0 -n $decoded
measure "prefill, pp$prompt" -p $prompt -n 0
