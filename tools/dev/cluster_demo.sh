#!/usr/bin/env bash
# Four unlike machines, simulated, as four real nodes on this one: they find their cluster, share a
# model, answer.
# Runs inside the environment: cluster_demo.sh MEDLEY MODEL FOLDER [PROMPT]
set -euo pipefail
medley=$1 model=$(readlink -f "$2") folder=$3
prompt=${4:-Tell me a story about a fox and a lantern.}
machines=(studio laptop mini pi)
nodes=()

end() {
  for node in "${nodes[@]}"; do kill "$node" 2>/dev/null || true; done
  wait 2>/dev/null || true
}
trap end EXIT

step() { printf '\n\033[1m%s\033[0m\n' "$*"; }
on() { # MACHINE COMMAND...
  local machine=$1
  shift
  MEDLEY_STATE_DIR=$folder/$machine "$medley" "$@"
}
show() { # the same, and the command line before it
  printf '%s$ medley' "$1"
  printf ' %q' "${@:2}"
  printf '\n'
  on "$@"
}

start() { # MACHINE NUMBER [OPTION...]
  local machine=$1 number=$2
  mkdir -p "$folder/$machine"
  MEDLEY_STATE_DIR=$folder/$machine "$medley" up --name "$machine" \
    --sim "examples/cluster/$machine.ini" --threads 1 \
    --listen "127.0.0.1:$((7970 + number))" --api "127.0.0.1:$((8970 + number))" \
    --no-discovery --no-governor "${@:3}" \
    >"$folder/$machine.log" 2>&1 &
  nodes+=($!)
}

wait_for() { # TEXT COMMAND...: until its output has the text
  for _ in $(seq 100); do
    if "${@:2}" 2>/dev/null | grep -q "$1"; then return; fi
    sleep 0.1
  done
  echo "cluster-demo: '$1' did not come; see $folder/*.log" >&2
  exit 1
}

rm -rf "$folder"
mkdir -p "$folder"

step 'studio begins a cluster; the others join it, each with a code of its own'
start studio 1
wait_for studio on studio nodes
for i in 1 2 3; do
  machine=${machines[$i]}
  code=$(on studio invite --json | sed -n 's/.*"code": *"\([^"]*\)".*/\1/p')
  echo "$machine\$ medley join $code"
  start "$machine" $((i + 1)) --peer 127.0.0.1:7971 --join "$code"
  wait_for "$machine  *up" on studio nodes
done

step 'They know each other, and what each has'
show laptop nodes

step 'The model is on studio alone. The others fetch just the layers that they are to compute'
show studio place "$model" --streams 8
du -sh --apparent-size "$model" | sed 's/^/the model:        /'
for machine in laptop mini pi; do
  printf '%-8s fetched: %s\n' "$machine" \
    "$(du -sch "$folder/$machine"/models/*.gguf 2>/dev/null | tail -n 1 | cut -f 1)"
done

step 'Links are measured while they are used for other things'
show mini links

step 'The slowest of them asks'
show pi run "Medley Stories" -p "$prompt" -n 120 --seed 7

step 'Every node serves the same API'
printf 'any$ curl http://127.0.0.1:8973/v1/models\n'
curl -s http://127.0.0.1:8973/v1/models
echo
