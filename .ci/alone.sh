#!/usr/bin/env bash
# Runs a test binary for `go test -exec` while no other one runs, and appends the seconds that it took and its package to the file in PACKAGE_TIMES.
#
# usage: alone.sh <binary> [argument]...
set -uo pipefail

if [ -z "${ALONE:-}" ]; then
	lock=$(dirname "$0")/../bin/alone.lock
	ALONE=1 exec flock -o "$lock" "$0" "$@"
fi
unset ALONE
begun=$SECONDS
"$@"
status=$?
[ -z "${PACKAGE_TIMES:-}" ] || echo "$((SECONDS - begun)) $(git rev-parse --show-prefix)" >>"$PACKAGE_TIMES"
exit $status
