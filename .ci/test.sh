#!/usr/bin/env bash
# Runs the tests of one lane (docs/testing.md) in the module in the working directory.
#
#   first    with the race detector, in random order
#   system   files with the tag system; one package at a time has the machine (RACE=1: with the race detector)
#   long     files with the tag long, and tests that do more in that lane (pkg/testlane)
#   whole    all tests, one package at a time, or TOGETHER: whole-system tests, and tests of the test world
#
# Tests that .ci/quarantine.txt names run at the end, and cannot fail the run. PACKAGES (./...) and RUN (a regular expression) narrow a run.
# Binaries have no debug information for debuggers, which takes half of the time to link them. `make lint` vets: the go command would also vet
# each dependency, for the facts that it has about them.
#
# usage: test.sh <lane> [flag of go test]...
set -euo pipefail

lane=${1:?usage: test.sh <lane> [flag of go test]...}
shift
root=$(cd "$(dirname "$0")/.." && pwd)
jobs=${BUILD_JOBS:-$(nproc)}
read -ra packages <<<"${PACKAGES:-./...}"
selected=()
[ -z "${RUN:-}" ] || selected=(-run "$RUN")

tags=() build=()
case $lane in
first) RACE=1 ;;
system | long) tags=("$lane") ;;
whole) ;;
*)
	echo "test.sh: unknown lane $lane: first, system, long or whole" >&2
	exit 2
	;;
esac
export CGO_ENABLED=0
if [ -n "${RACE:-}" ]; then
	# The tags are those of the images with the race detector, which then share the compiled packages.
	CGO_ENABLED=1 tags+=(netgo osusergo) build+=(-race)
fi
build+=(-tags="$(IFS=,; echo "${tags[*]}")")

if [[ $lane == system || $lane == long ]] && [ -z "${RUN:-}" ]; then
	list=$("$root/bin/testlanes" list "$lane" .)
	[ -n "$list" ] || exit 0
	[ -n "${PACKAGES:-}" ] || mapfile -t packages < <(cut -f 1 <<<"$list")
	# One expression for all of these packages: a test of another lane runs, too, if it has the name of one of this lane.
	selected=(-run "^($(cut -f 2 <<<"$list" | sed 's/^^(//; s/)$$//' | paste -sd '|'))\$")
fi

flags=(-vet=off -ldflags=-w "${build[@]}")
if [ "$lane" = first ]; then
	flags+=(-p "$jobs" -shuffle=on)
else
	# While one package has the machine, the next ones are linked. With TOGETHER, so many run at the same time, without waiting for each other.
	[ -z "${TOGETHER:-}" ] || export ALONE=1
	flags+=(-p "${TOGETHER:-$((jobs + 1))}" -count=1 -exec "$root/.ci/alone.sh")
fi
flags+=("$@")

# Packages of this module with quarantined tests, and the names of these tests.
declare -A quarantined=()
module=$(go list -m)
while read -r _ package name; do
	[[ $package/ == "$module"/* ]] || continue
	quarantined[$package]=${quarantined[$package]:+${quarantined[$package]}|}$name
done < <(grep -v '^[#[:space:]]' "${QUARANTINE:-$root/.ci/quarantine.txt}")

"$root/.ci/compile.sh" "${build[@]}" "${packages[@]}"
if [ ${#quarantined[@]} = 0 ]; then
	exec go test "${flags[@]}" "${selected[@]}" "${packages[@]}"
fi

mapfile -t packages < <(go list "${build[@]}" "${packages[@]}")
others=() failed=0
for package in "${packages[@]}"; do
	[ -n "${quarantined[$package]:-}" ] || others+=("$package")
done
[ ${#others[@]} = 0 ] || go test "${flags[@]}" "${selected[@]}" "${others[@]}" || failed=1
for package in "${packages[@]}"; do
	names=${quarantined[$package]:-}
	[ -n "$names" ] || continue
	go test "${flags[@]}" "${selected[@]}" -skip "^($names)\$" "$package" || failed=1
	if go test "${flags[@]}" -run "^($names)\$" "$package"; then
		echo "quarantine: $names of $package passed"
	else
		echo "quarantine: $names of $package FAILED again, which does not count: see .ci/quarantine.txt" >&2
	fi
done
exit $failed
