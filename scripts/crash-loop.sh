#!/usr/bin/env bash
# Kills a dev stack in the middle of its work, again and again, and checks each
# time that nothing is lost, doubled or wrong:
#
#   scripts/crash-loop.sh [ROUNDS]     10 by default
#
# A round submits jobs, kills the stack with SIGKILL while they run, starts it
# again, submits the same jobs once more under the same keys, and waits until
# each is settled or unknown (a job whose worker was killed may be: nobody knows
# whether it ran). It fails if
#   - a job does not come to rest,
#   - there are more or fewer jobs than keys,
#   - an attempt called its program more than once,
#   - the tables differ from the stream (jobledger verify).
#
# JOBS is how many jobs a round submits (40). Everything is kept in a temporary
# folder, which stays if a round fails.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
rounds=${1:-10}
jobs=${JOBS:-40}
ledger=$root/bin/jobledger
wait_seconds=120
work=$(mktemp -d "${TMPDIR:-/tmp}/jobledger-crash.XXXXXX")
stack=

fail() {
	echo "crash-loop: $*; see $work" >&2
	exit 1
}

finish() {
	local status=$?
	if [[ -n $stack ]] && kill -0 "$stack" 2>/dev/null; then
		kill "$stack" || true
		wait "$stack" || true
	fi
	((status != 0)) || rm -rf "$work"
}
trap finish EXIT

[[ $rounds =~ ^[1-9][0-9]*$ ]] || fail "the number of rounds is $rounds; expected 1 or more"
[[ -x $ledger ]] || make -C "$root" build

# A provider that leaves a trace for each call and takes a moment.
cat >"$work/provider.sh" <<'PROVIDER'
#!/bin/sh
echo x >>"$TRACES/$JOBLEDGER_JOB_ID.$JOBLEDGER_ATTEMPT"
sleep 0.05
echo '{"done":true}'
PROVIDER
chmod +x "$work/provider.sh"
mkdir "$work/traces"
cat >"$work/jobledger.yaml" <<CONFIG
kinds:
  touch: {providers: [program], effects: external, attempt_timeout: 5s}
providers:
  program: {type: exec, command: ["$work/provider.sh"], env_pass: [PATH, TRACES], concurrency: 8}
CONFIG
export TRACES=$work/traces

command=("$ledger" --config "$work/jobledger.yaml" --data "$work/data" --log-level warn)

run() {
	"${command[@]}" "$@"
}

start() {
	rm -f "$work/data/dev.json"
	# Not by run: the process must be the stack itself, to be killed.
	"${command[@]}" dev --http 127.0.0.1:0 --nats-port 0 >>"$work/dev.log" 2>&1 </dev/null &
	stack=$!
	local end=$((SECONDS + wait_seconds))
	until [[ -e $work/data/dev.json ]]; do
		kill -0 "$stack" 2>/dev/null || fail "the stack ended while starting"
		((SECONDS < end)) || fail "the stack is not ready after $wait_seconds seconds"
		sleep 0.1
	done
}

# Submits the jobs of a round; what a kill makes fail is submitted once more later.
submit() {
	local round=$1 i
	for ((i = 1; i <= jobs; i++)); do
		run submit --owner crash --key "round-$round-$i" --kind touch --input "{\"n\":$i}" >/dev/null 2>>"$work/submit.log" || return 1
	done
}

# Waits until every job of a round is settled or unknown: exit statuses 0, 1, 8, 9.
settle() {
	local round=$1 i status
	for ((i = 1; i <= jobs; i++)); do
		status=0
		run job wait --owner crash --key "round-$round-$i" --timeout "${wait_seconds}s" >/dev/null 2>>"$work/wait.log" || status=$?
		case $status in
		0 | 1 | 8 | 9) ;;
		*) fail "job round-$round-$i did not come to rest (status $status)" ;;
		esac
	done
}

check() {
	local round=$1 trace
	for trace in "$TRACES"/*; do
		[[ $(wc -l <"$trace") -eq 1 ]] || fail "an attempt called its program more than once: $trace"
	done
	local want=$((round * jobs)) found=0 page cursor=''
	while :; do
		page=$(run job list --owner crash --limit 100 ${cursor:+--cursor "$cursor"} --output json)
		found=$((found + $(grep -o '"key": *"round-[0-9-]*"' <<<"$page" | wc -l)))
		cursor=$(sed -n 's/.*"next_cursor": *"\([^"]*\)".*/\1/p' <<<"$page" | tail -n 1)
		[[ -n $cursor ]] || break
	done
	((found == want)) || fail "there are $found jobs; expected $want"
	run verify >>"$work/verify.log" 2>&1 || fail "the tables differ from the stream; see verify.log"
}

start
for ((round = 1; round <= rounds; round++)); do
	submit "$round" &
	submitter=$!
	# Somewhere in the middle, at another place in each round.
	sleep "$((RANDOM % 2)).$((RANDOM % 10))"
	kill -9 "$stack"
	wait "$stack" 2>/dev/null || true
	wait "$submitter" || true
	start
	submit "$round" || fail "a job could not be submitted again"
	settle "$round"
	check "$round"
	echo "round $round of $rounds: $((round * jobs)) jobs, $(find "$TRACES" -type f | wc -l) calls, tables as the stream says"
done
