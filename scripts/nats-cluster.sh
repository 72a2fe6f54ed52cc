#!/usr/bin/env bash
# Starts, stops and shows a NATS cluster of three servers on 127.0.0.1, with the
# settings that a ledger needs (nats-server.conf). For trying out replicas: all
# three share this machine's disk.
#
#   scripts/nats-cluster.sh start     build the server if need be, start what is not running
#   scripts/nats-cluster.sh status    which servers run, and their URLs
#   scripts/nats-cluster.sh stop      stop all three; their data stays
#
# Settings, by environment: NATS_CLUSTER_DIR (var/nats-cluster), where data, logs
# and pid files are, and NATS_CLUSTER_PORT (4231): the servers listen on this port
# and the two after it, their routes 1000 above.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
dir=${NATS_CLUSTER_DIR:-$root/var/nats-cluster}
port=${NATS_CLUSTER_PORT:-4231}
server=$root/bin/nats-server
wait_seconds=20

fail() {
	echo "nats-cluster: $*" >&2
	exit 1
}

# The process of a server, if its pid file names one that runs our program.
pid_of() {
	local file=$dir/s$1/pid pid
	[[ -r $file ]] || return 1
	pid=$(<"$file")
	[[ $pid =~ ^[0-9]+$ && $(readlink "/proc/$pid/exe" 2>/dev/null) == "$server"* ]] || return 1
	echo "$pid"
}

url_of() {
	echo "nats://127.0.0.1:$((port + $1 - 1))"
}

build() {
	[[ -x $server ]] || (cd "$root" && go build -o "$server" github.com/nats-io/nats-server/v2)
}

start_one() {
	local n=$1 home=$dir/s$1 routes=() i
	for i in 1 2 3; do
		[[ $i == "$n" ]] || routes+=("nats://127.0.0.1:$((port + 1000 + i - 1))")
	done
	mkdir -p "$home"
	[[ ! -e $home/log ]] || mv "$home/log" "$home/log.old" # has_leader reads what this run says
	"$server" --config "$root/scripts/nats-server.conf" --name "s$n" --addr 127.0.0.1 --port $((port + n - 1)) \
		--store_dir "$home/data" --log "$home/log" --pid "$home/pid" \
		--cluster_name jobledger --cluster "nats://127.0.0.1:$((port + 1000 + n - 1))" \
		--routes "$(IFS=,; echo "${routes[*]}")" </dev/null >/dev/null 2>&1 &
}

listens() {
	(exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# Waits until a condition holds; says what did not become true.
await() {
	local what=$1 end=$((SECONDS + wait_seconds))
	shift
	until "$@"; do
		((SECONDS < end)) || fail "$what: not after $wait_seconds seconds; see $dir/s*/log"
		sleep 0.1
	done
}

# JetStream takes requests once the servers have elected a leader.
has_leader() {
	grep -qhE 'JetStream cluster new metadata leader|Self is new JetStream cluster metadata leader' "$dir"/s*/log 2>/dev/null
}

start() {
	build
	for n in 1 2 3; do
		pid_of "$n" >/dev/null || start_one "$n"
	done
	for n in 1 2 3; do
		await "server s$n listens on port $((port + n - 1))" listens $((port + n - 1))
		await "server s$n has written its pid file" pid_of "$n" >/dev/null
	done
	await "the servers have elected a leader" has_leader
	status
}

stop() {
	local n pid
	for n in 1 2 3; do
		if pid=$(pid_of "$n"); then
			kill "$pid"
			await "server s$n stops" gone "$n"
		fi
	done
	status
}

gone() {
	! pid_of "$1" >/dev/null
}

status() {
	local n pid urls=()
	for n in 1 2 3; do
		if pid=$(pid_of "$n"); then
			echo "s$n runs as process $pid on $(url_of "$n")"
			urls+=("$(url_of "$n")")
		else
			echo "s$n does not run"
		fi
	done
	if ((${#urls[@]} > 0)); then
		echo "--nats $(IFS=,; echo "${urls[*]}")"
	fi
}

case ${1:-} in
start | stop | status) "$1" ;;
*) fail "expected start, stop or status" ;;
esac
