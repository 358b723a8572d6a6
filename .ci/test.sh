#!/usr/bin/env bash
# Runs tests of the module in the working directory with the race detector.
#
# The tags are those of the images of the whole-system tests, which then share the compiled packages. `make lint` vets: the go
# command would also vet each dependency, for the facts that it has about them.
#
# usage: test.sh [flag of go test]... <package>...
set -euo pipefail

export CGO_ENABLED=1
build=(-race '-tags=netgo,osusergo')
packages=()
for argument; do
	[[ $argument != ./* ]] || packages+=("$argument")
done
"$(dirname "$0")/compile.sh" "${build[@]}" "${packages[@]}"
go test -p "${BUILD_JOBS:-$(nproc)}" "${build[@]}" -vet=off "$@"
