# served.sh MEDLEY MODEL [PORT]: starts `medley up` on the loopback and asks its API for a text, with
# nothing but what a bare Debian has. Prints the text; the time to the first token goes to stderr.
set -u
port=${3:-8080}
scratch=$(mktemp -d)
began=$(date +%s%N)
"$1" up --api "127.0.0.1:$port" --listen "127.0.0.1:$((port + 1))" --no-discovery \
  --model "$2" >"$scratch/up" 2>&1 &
node=$!

finish() { # STATUS
  kill $node 2>/dev/null
  wait $node
  rm -rf "$scratch"
  exit "$1"
}

request() { # METHOD PATH BODY; the answer is to be read from descriptor 3
  { exec 3<>"/dev/tcp/127.0.0.1/$port"; } 2>/dev/null || return 1
  printf '%s %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nContent-Type: application/json\r\n' \
    "$1" "$2" "$port" >&3
  printf 'Content-Length: %d\r\n\r\n%s' ${#3} "$3" >&3
}

model_name() { # what the API calls the model, when it has one
  local said=
  request GET /v1/models '' || return 1
  read -r -t 1 -d ']' said <&3
  exec 3>&-
  printf '%s' "$said" | sed -n 's/.*"id": *"\([^"]*\)".*/\1/p' | head -n 1
}

text() { # MODEL
  local line part first=yes
  request POST /v1/completions '{"model": "'"$1"'", "prompt": "Once upon a time", "stream": true,
    "max_tokens": 12, "temperature": 0}' || return 1
  while IFS= read -r -t 20 line <&3; do
    printf '%s\n' "$line" >>"$scratch/said"
    case $line in *'[DONE]'* | '{"error"'*) break ;; esac
    part=$(printf '%s' "$line" | sed -n 's/^data: .*"text": *"\([^"]*\)".*/\1/p')
    [ -n "$part" ] || continue
    [ -z "$first" ] ||
      printf '%d ms from start to the first token\n' $((($(date +%s%N) - began) / 1000000)) >&2
    first=
    printf '%s' "$part"
  done
  exec 3>&-
  [ -z "$first" ]
}

for _ in $(seq 60); do
  kill -0 $node 2>/dev/null || break
  name=$(model_name)
  if [ -n "$name" ]; then
    if text "$name"; then finish 0; fi
    break
  fi
  sleep 0.2
done
cat "$scratch/up" >&2
[ ! -f "$scratch/said" ] || cat "$scratch/said" >&2
finish 1
