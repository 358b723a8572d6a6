#!/usr/bin/env bash
# Builds localkube and its shim into the folder $1, and prints the progress: a clean build of Kubernetes takes minutes, after an
# edit only linking (10 s) is left. GOFLAGS are those of Make: other flags would compile and cache all of Kubernetes a second time.
set -euo pipefail
out=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")"
go=$PWD/../../.ci/go.sh
export GOWORK=off
kubernetes=1.37.1
version=k8s.io/component-base/version
ldflags="-s -w -X $version.gitVersion=v$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=37 -X $version.gitTreeState=clean"
ldflags+=" -X k8s.io/client-go/pkg/version.gitVersion=v$kubernetes -X fairlead.dev/pkg/version.version=${VERSION:-dev}"

tty=0
[ -t 2 ] && tty=1
# One line on a terminal, one every 15 s in a log; none when there is nothing to compile.
progress() {
	awk -v tty="$tty" -v total="$1" -v start="$(date +%s)" '
		function say(text) { if (tty) printf "\r%-100s", text > "/dev/stderr"; else print text > "/dev/stderr"; fflush("/dev/stderr") }
		function elapsed(  now) { "date +%s" | getline now; close("date +%s"); return now - start }
		/^go: downloading/ { downloads++ }
		/^go: downloading/ || /^[a-z0-9.-]+(\/[^ :]+)*$/ {
			if ($0 !~ /^go:/) compiled++
			t = elapsed()
			if (t != last && (tty || t - last >= 15)) {
				last = t
				text = sprintf("localkube: %d modules downloaded, %d:%02d", downloads, t / 60, t % 60)
				if (total > 0) text = sprintf("localkube: %d of about %d packages compiled, %d modules downloaded, %d:%02d", compiled, total, downloads, t / 60, t % 60)
				say(text (compiled + downloads > 50 ? " (8 minutes from nothing)" : ""))
			}
			next
		}
		{ print > "/dev/stderr" }
		END { if (tty && last) print "" > "/dev/stderr" }'
}

echo "localkube: looking at what there is to build" >&2
# Counting the packages takes a second or two; the last count is a good estimate.
count=$out/cache/localkube-packages
if [ ! -s "$count" ]; then
	mkdir -p "$out/cache"
	go list -deps ./cmd/localkube 2> >(progress 0 >&2) | wc -l >"$count"
fi
total=$(<"$count")
"$go" build -v -ldflags "$ldflags" -o "$out/localkube" ./cmd/localkube 2> >(progress "$total" >&2)
"$go" build -ldflags "-s -w" -o "$out/localkube-shim" ./cmd/localkube-shim
