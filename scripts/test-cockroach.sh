#!/bin/sh
# Runs the tests of the packages that speak SQL against a CockroachDB server that
# is started for them, in memory and on 127.0.0.1, from the binary in
# COCKROACH_BINARY.
set -eu

: "${COCKROACH_BINARY:?is not set: give the path of the cockroach binary}"
go=${GO:-go}
start_timeout=60 # seconds

dir=$(mktemp -d)
pid=
stop() {
	if [ -n "$pid" ]; then
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	fi
	rm -rf "$dir"
}
trap stop EXIT
trap 'exit 1' INT TERM

"$COCKROACH_BINARY" version
"$COCKROACH_BINARY" start-single-node --insecure --store=type=mem,size=1GiB \
	--listen-addr=127.0.0.1:0 --http-addr=127.0.0.1:0 --listening-url-file="$dir/url" --log-dir="$dir/logs" \
	>"$dir/out" 2>&1 &
pid=$!

waited=0
until [ -s "$dir/url" ]; do
	if ! kill -0 "$pid" 2>/dev/null || [ "$waited" -ge "$start_timeout" ]; then
		echo "test-cockroach: the server did not start within $start_timeout s; it said:" >&2
		cat "$dir/out" >&2
		exit 1
	fi
	sleep 1
	waited=$((waited + 1))
done

JOBLEDGER_TEST_DATABASE=$(cat "$dir/url") "$go" test -count=1 -timeout 30m ./schema/... ./projector/...
