#!/bin/sh
# quickstart.sh - from a bare Debian 12 to a running Sluice: packages, build, model, then the main job before your eyes:
# a batch file runs while a chat streams in front of it.
#
#   sh deploy/quickstart.sh           run the demonstration and stop
#   sh deploy/quickstart.sh --serve   keep serving, print a curl line that works (stop with Ctrl-C)
#   HTTP=127.0.0.1:8000 RPC=tcp://127.0.0.1:5570 WORKERS=tcp://127.0.0.1:5571   other addresses by environment
set -eu
cd "$(dirname "$0")/.."
. deploy/lib.sh

serve=
case "${1:-}" in
    --serve) serve=1 ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    "") ;;
    *) die "unknown argument '$1'; see --help" ;;
esac

HTTP=${HTTP:-127.0.0.1:8000}
RPC=${RPC:-tcp://127.0.0.1:5570}
WORKERS=${WORKERS:-tcp://127.0.0.1:5571}

# shellcheck disable=SC2086
install_packages $PACKAGES_RUN
get_model
say "build: build/release (a minute the first time)"
build build/release -DCMAKE_BUILD_TYPE=Release -DSLUICE_TESTS=OFF
PATH=$PWD/build/release/bin:$PATH

demo=$(mktemp -d)
up_pid=
batch_pid=
stop() {
    trap - EXIT INT TERM
    [ -n "$batch_pid" ] && kill "$batch_pid" 2>/dev/null
    [ -n "$up_pid" ] && kill "$up_pid" 2>/dev/null && wait "$up_pid" 2>/dev/null
    rm -rf "$demo"
}
trap stop EXIT
trap 'stop; exit 130' INT TERM

say "start: gateway and CPU worker (sluice up)"
mkfifo "$demo/ready"
sluice up --model "$MODEL" --http "$HTTP" --rpc "$RPC" --workers-endpoint "$WORKERS" --state "$demo/state" \
    >"$demo/ready" 2>"$demo/up.log" &
up_pid=$!
read -r line <"$demo/ready" || { grep -E 'error' "$demo/up.log" | tail -n 1 >&2; die "the server did not start"; }
say "$line"

if [ -n "$serve" ]; then
    cat <<EOT

  curl -N http://$HTTP/v1/chat/completions -H 'content-type: application/json' \\
    -d '{"model":"$MODEL_NAME","stream":true,"messages":[{"role":"user","content":"Tell me about the sea."}]}'

serving until Ctrl-C
EOT
    wait "$up_pid" || true
    up_pid=
    exit 0
fi

say "batch: 24 requests in the background (sluice batch run)"
i=0
while [ "$i" -lt 24 ]; do
    i=$((i + 1))
    printf '{"custom_id":"line-%d","method":"POST","url":"/v1/chat/completions","body":{"model":"%s","max_tokens":48,"messages":[{"role":"user","content":"Write a short note about the number %d."}]}}\n' \
        "$i" "$MODEL_NAME" "$i"
done >"$demo/in.jsonl"
sluice batch run --rpc "$RPC" "$demo/in.jsonl" "$demo/out.jsonl" >"$demo/batch.txt" 2>&1 &
batch_pid=$!

# the chat begins when the batch is really running
tries=0
until [ -s "$demo/out.jsonl" ] || [ "$tries" -ge 300 ] || ! kill -0 "$batch_pid" 2>/dev/null; do
    tries=$((tries + 1))
    sleep 0.1
done
done_before=$(wc -l <"$demo/out.jsonl")
say "chat: streams in front of the batch (sluice chat)"
echo
sluice chat --rpc "$RPC" --stats --max-tokens 60 --temperature 0 "Explain what a sluice gate does, in two sentences." 2>"$demo/chat.stats"
echo
done_after=$(wc -l <"$demo/out.jsonl")
wait "$batch_pid" || { tail -n 3 "$demo/batch.txt" >&2; die "the batch did not finish"; }
batch_pid=

printf '\n%-28s %s\n' "chat beside the batch" "$(tail -n 1 "$demo/chat.stats")"
printf '%-28s %s of 24 before the chat, %s after it\n' "batch lines done" "$done_before" "$done_after"
printf '%-28s %s of 24\n' "batch lines at the end" "$(wc -l <"$demo/out.jsonl")"
printf '%-28s %s\n\n' "batch" "$(tail -n 1 "$demo/batch.txt" | tr -d '\r')"
say "stopping"
stop
say "done: 'sh deploy/quickstart.sh --serve' keeps it running; 'sh deploy/test.sh' runs the tests"
