# The job ledger. `make` lists the targets.

GO ?= go
# Binaries carry their commit where git can be asked for it: not in an archive,
# nor in a checkout that belongs to somebody else.
BUILD := $(GO) build $(shell git rev-parse HEAD >/dev/null 2>&1 || echo -buildvcs=false)

.DEFAULT_GOAL := help
.PHONY: help setup build run failover test race lint bench mutants test-cockroach clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what is missing: PostgreSQL's server programs
	@sh scripts/setup.sh

build: ## build bin/jobledger
	@mkdir -p bin
	$(BUILD) -o bin/jobledger ./cmd/jobledger

run: setup build ## run the sample on a dev stack of its own, and stay up; ONCE=1: end after the table
	@$(BUILD) -o bin/sample ./examples/sample
	@ONCE="$(ONCE)" bin/sample

failover: setup build ## show what stands between a job and the wrong fallback
	@$(GO) run ./examples/failover -jobledger bin/jobledger

test: setup ## run every test
	@{ command -v node && command -v npm; } >/dev/null || echo "SKIPPED: node or npm is not on the PATH, so the worker in examples/worker-node is not tested." >&2
	$(GO) test -timeout 20m ./...

race: setup ## run the tests of what runs concurrently under the race detector
	$(GO) test -race -timeout 20m ./ledger ./publisher/... ./projector ./workers/...

lint: ## check formatting, vet, .golangci.yml and the rules for SQL
	@GO="$(GO)" scripts/lint.sh

bench: setup build ## measure this machine
	bin/jobledger bench

mutants: setup ## break the fold's rules one by one, and see that a test notices each
	$(GO) run ./scripts/mutants

test-cockroach: ## run the store's tests against the binary in COCKROACH_BINARY
	@if [ -z "$$COCKROACH_BINARY" ]; then \
		echo "SKIPPED: COCKROACH_BINARY is not set, so nothing was tested on CockroachDB."; \
		echo "         make test-cockroach COCKROACH_BINARY=/path/to/cockroach runs the tests of schema and projector on it."; \
	else \
		GO="$(GO)" sh scripts/test-cockroach.sh; \
	fi

clean: ## remove what was built and what runs have left
	rm -rf bin var
