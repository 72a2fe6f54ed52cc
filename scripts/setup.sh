#!/bin/sh
# Installs what building and running the job ledger needs and this machine
# lacks: PostgreSQL's server programs, by apt on Debian and Ubuntu. Where CI is
# set, also Node.js and npm, without which the tests leave out the worker in
# examples/worker-node. Go is only looked for. Silent and quick when nothing is
# missing; safe to run again.
#
# No PostgreSQL service is set up or started: the ledger runs its own server.
set -eu

go_major=1
go_minor=26
install_timeout=300 # seconds to wait for another apt to finish

fail() {
	echo "setup: $*" >&2
	exit 1
}

# Succeeds if Go is there and new enough. Without toolchain switching, the
# answer is of the installed Go, not of one that it would fetch.
check_go() {
	command -v go >/dev/null 2>&1 ||
		fail "Go is missing: install Go $go_major.$go_minor or newer from https://go.dev/dl/ and put it on the PATH"
	version=$(cd / && GOTOOLCHAIN=local go env GOVERSION)
	numbers=${version#go}
	major=${numbers%%.*}
	minor=${numbers#*.}
	minor=${minor%%[!0-9]*}
	case "$major$minor" in
	'' | *[!0-9]*) return 0 ;; # a development version, which is as new as can be
	esac
	if [ "$major" -lt "$go_major" ] || { [ "$major" -eq "$go_major" ] && [ "$minor" -lt "$go_minor" ]; }; then
		fail "found Go $version, but $go_major.$go_minor or newer is needed: see https://go.dev/dl/"
	fi
}

has_programs() {
	[ -x "$1/initdb" ] && [ -x "$1/postgres" ]
}

has_postgres() {
	if [ -n "${JOBLEDGER_POSTGRES_BIN:-}" ]; then
		has_programs "$JOBLEDGER_POSTGRES_BIN" ||
			fail "JOBLEDGER_POSTGRES_BIN is $JOBLEDGER_POSTGRES_BIN, which has no initdb and postgres: correct or unset it"
		return 0
	fi
	for bin in /usr/lib/postgresql/*/bin; do
		! has_programs "$bin" || return 0
	done
	program=$(command -v postgres) || return 1
	has_programs "$(dirname "$(readlink -f "$program")")"
}

# Runs a command as root. env passes settings on, which sudo would drop.
as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		env "$@"
	elif command -v sudo >/dev/null 2>&1; then
		sudo env "$@"
	else
		fail "installing packages needs root: run this script as root, or install sudo"
	fi
}

# Never asks, keeps configuration files that are there, and waits for others.
apt() {
	as_root DEBIAN_FRONTEND=noninteractive UCF_FORCE_CONFFOLD=1 apt-get -qq -o "DPkg::Lock::Timeout=$install_timeout" "$@"
}

# Fetches apt's lists, once for all that is installed.
refresh() {
	[ -n "${refreshed:-}" ] || apt update
	refreshed=yes
}

# Installing Debian's package makes a cluster and starts it, unless a
# configuration that is there before says otherwise. One that exists already
# is the administrator's, and is left alone.
forbid_main_cluster() {
	conf=/etc/postgresql-common/createcluster.conf
	if [ ! -e "$conf" ]; then
		as_root mkdir -p "${conf%/*}"
		echo 'create_main_cluster = false' | as_root tee "$conf" >/dev/null
	fi
}

install_postgres() {
	command -v apt-get >/dev/null 2>&1 ||
		fail "PostgreSQL's server programs are missing and there is no apt-get: install PostgreSQL, or set JOBLEDGER_POSTGRES_BIN to their folder"
	echo "setup: installing PostgreSQL's server programs" >&2
	refresh
	forbid_main_cluster
	apt install --no-install-recommends postgresql >/dev/null
	has_postgres || fail "apt installed the package postgresql, but there is still no /usr/lib/postgresql/*/bin/postgres"
}

has_program() {
	command -v "$1" >/dev/null 2>&1
}

# Node.js may come with npm or without: only what is missing is installed, since
# Debian's npm does not go with another's Node.js.
install_node() {
	has_program apt-get ||
		fail "CI is set, node or npm is missing and there is no apt-get: install Node.js 18 or newer with npm"
	echo "setup: installing Node.js and npm" >&2
	refresh
	has_program node || apt install --no-install-recommends nodejs >/dev/null
	has_program npm || apt install --no-install-recommends npm >/dev/null
	{ has_program node && has_program npm; } || fail "apt installed nodejs and npm, but node or npm is still not on the PATH"
}

check_go
has_postgres || install_postgres
if [ -n "${CI:-}" ]; then
	{ has_program node && has_program npm; } || install_node
fi
