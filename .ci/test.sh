#!/usr/bin/env bash
# Runs tests of the module in the working directory with the race detector, and packages with long calculations (pkg/racetest) once
# more without.
#
# The tags are those of the images of the whole-system tests, which then share the compiled packages. `make lint` vets: the go
# command would also vet each dependency, for the facts that it has about them.
#
# usage: test.sh [flag of go test]... <package>...
set -euo pipefail

build=(-race '-tags=netgo,osusergo')
flags=()
packages=()
for argument; do
	if [[ $argument == ./* ]]; then packages+=("$argument"); else flags+=("$argument"); fi
done
CGO_ENABLED=1 "$(dirname "$0")/compile.sh" "${build[@]}" "${packages[@]}"
CGO_ENABLED=1 go test -p "${BUILD_JOBS:-$(nproc)}" "${build[@]}" -vet=off "$@"

mapfile -t calculate < <(go list -f '{{range .TestImports}}{{if eq . "fairlead.dev/pkg/racetest"}}{{$.ImportPath}}{{end}}{{end}}' "${packages[@]}")
if [ ${#calculate[@]} -gt 0 ]; then
	echo "without the race detector:"
	go test -p "${BUILD_JOBS:-$(nproc)}" -vet=off "${flags[@]}" "${calculate[@]}"
fi
