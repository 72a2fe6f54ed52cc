#!/usr/bin/env bash
# What `make lint` does: formatting, go vet, golangci-lint with .golangci.yml, and
# the rules for SQL. The linter is built into bin/ at its pinned version when it
# is not there.
set -euo pipefail
cd "$(dirname "$0")/.."

version=v2.15.0
linter=$PWD/bin/golangci-lint
go=${GO:-go}

installed() {
	[[ -x $linter ]] && [[ $("$go" version -m "$linter" 2>/dev/null) == *$'\tmod\tgithub.com/golangci/golangci-lint/v2\t'"$version"* ]]
}

if ! installed; then
	echo "lint: building golangci-lint $version into bin/, once; this takes minutes" >&2
	GOFLAGS='' GOBIN=$PWD/bin "$go" install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version"
fi

unformatted=$(gofmt -l cmd examples internal ledger projector publisher schema scripts workers)
if [[ -n $unformatted ]]; then
	printf 'lint: not formatted (run gofmt -w):\n%s\n' "$unformatted" >&2
	exit 1
fi
"$go" vet ./...
"$linter" run --allow-parallel-runners ./... # another checkout may be linted at the same time
# SQL: the statements in Go files, and the migrations.
"$go" test -count=1 ./internal/sqllint
"$go" test -count=1 -run 'Lint|Rules|Twins' ./schema
