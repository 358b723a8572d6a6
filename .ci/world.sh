#!/usr/bin/env bash
# Reads names of changed files, and prints those that can change what tests run in: emulators and the embedded Kubernetes, with what they
# import. `make test-world` tests it.
set -euo pipefail
cd "$(dirname "$0")/.."

folders() { # module, packages: the folders in this repository that they and their tests are made of
	(cd "$1" && GOWORK=off go list -deps -test -f '{{.Dir}}' "${@:2}") | sed -n "s|^$PWD/||p"
}

exec 3<&0
{
	folders deploy/emulators ./...
	folders deploy/local ./internal/... ./cmd/...
	folders deploy/local/e2e ./cluster
} | sort -u | awk '
	NR == FNR { folder[$0] = 1; next }
	{ path = $0; sub("/testdata/.*", "/", path); sub("/[^/]*$", "", path) }
	path in folder || /^deploy\/(emulators|local|local\/e2e)\/go\.(mod|sum)$/' - /dev/fd/3
