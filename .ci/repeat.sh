#!/usr/bin/env bash
# Runs lanes of tests many times, to find tests that depend on the speed or the state of the machine. Binaries are linked once. It stops by
# itself, and prints each failure.
#
#   lane     idle machine    beside busy loops, per two processors
#   first    20 times        10 times beside 4
#   system   10 times        3 times beside 2
#
# IDLE and LOADED set other numbers of times.
#
# usage: repeat.sh <lane>... -- "<module>..."
set -euo pipefail

lanes=()
while [ "$1" != -- ]; do
	lanes+=("$1")
	shift
done
modules=$2
root=$(cd "$(dirname "$0")/.." && pwd)
export GOWORK=off # some tests run the go command
jobs=$(nproc)
mkdir -p "$root/bin/repeat"
dir=$(mktemp -d "$root/bin/repeat/XXXXXX")
loops=()
trap 'stop_loops; rm -rf "$dir"' EXIT
# The signal can arrive twice, as make sends it to its children too. The script ignores the second one while it removes the folder.
trap 'trap "" INT TERM; exit 1' INT TERM

stop_loops() {
	[ ${#loops[@]} = 0 ] || kill "${loops[@]}" 2>/dev/null || true
	loops=()
}

# passes runs all kept binaries a number of times, beside a number of busy loops.
passes() { # lane, times, loops
	local lane=$1 times=$2 busy=$3 pass begun failed=0 at_once=1
	[ "$lane" = first ] && at_once=$jobs
	for ((pass = 0; pass < busy; pass++)); do
		timeout 6h sh -c 'while :; do :; done' &
		loops+=($!)
	done
	for ((pass = 1; pass <= times; pass++)); do
		begun=$SECONDS
		# shellcheck disable=SC2016 # sh expands it
		find "$dir/$lane" -name '*.sh' | sort -R | xargs -P "$at_once" -I{} sh -c '
			{} >{}.log 2>&1 || { echo "failed: $(sed -n "s|^cd \([^ ]*\) .*|\1|p" {})"; cat {}.log; exit 1; }' || failed=$((failed + 1))
		echo "$lane, pass $pass of $times beside $busy busy loops: $((SECONDS - begun)) s, $failed failed so far"
	done
	stop_loops
	return $((failed > 0))
}

status=0
for lane in "${lanes[@]}"; do
	case $lane in
	first) idle=20 loaded=10 busy=$((2 * jobs)) ;;
	system) idle=10 loaded=3 busy=$jobs ;;
	*)
		echo "repeat.sh: unknown lane $lane: first or system" >&2
		exit 2
		;;
	esac
	mkdir "$dir/$lane"
	KEEP=$dir/$lane "$root/.ci/each.sh" link "$modules" "$root/.ci/test.sh" "$lane" -exec "$root/.ci/keep.sh" -count=1 -timeout 30m >"$dir/$lane.txt" 2>&1 ||
		{ cat "$dir/$lane.txt" && exit 1; }
	echo "$lane: $(find "$dir/$lane" -name '*.sh' | wc -l) packages"
	passes "$lane" "${IDLE:-$idle}" 0 || status=1
	passes "$lane" "${LOADED:-$loaded}" "$busy" || status=1
done
exit $status
