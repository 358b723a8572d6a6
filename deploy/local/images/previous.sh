#!/usr/bin/env bash
# Builds the image fairlead/ingress-reconciler:previous from an earlier commit of this repository, and copies the chart of that
# commit to <bin>/previous/chart: tests upgrade from them. The file <bin>/previous/<commit> marks completion.
#
# A shallow clone fetches the commit. Without a history (a source archive), the program and chart are those of the working tree
# and only the version differs: the upgrade then replaces the pods, but runs no older code before.
#
# usage: previous.sh <bin> <commit>
set -euo pipefail
bin=$1 commit=$2
out=$bin/previous
cd "$(git rev-parse --show-toplevel 2>/dev/null || echo "$(dirname "$0")/../../..")"
go=$PWD/.ci/go.sh
export GOWORK=off

rm -rf "$out"
mkdir -p "$out/source"
parts=(pkg services/ingress-reconciler charts/ingress-reconciler)
if ! git cat-file -e "$commit^{commit}" 2>/dev/null && ! git fetch --quiet --depth=1 origin "$commit" 2>/dev/null; then
	echo "previous: commit $commit is not in this clone: upgrades are tested from a build of the working tree" >&2
	tar -c "${parts[@]}" | tar -x -C "$out/source"
	commit=unknown
else
	git archive "$commit" "${parts[@]}" | tar -x -C "$out/source"
fi
version=previous-${commit:0:7}
(
	cd "$out/source/services/ingress-reconciler"
	"$go" build -ldflags "-s -w -X fairlead.dev/pkg/version.version=$version -X fairlead.dev/pkg/version.commit=$commit" \
		-o "$out/ingress-reconciler" .
)
deploy/local/images/load.sh "$bin" fairlead/ingress-reconciler:previous "$out/ingress-reconciler"
mv "$out/source/charts/ingress-reconciler" "$out/chart"
rm -rf "$out/source"
touch "$out/$2"
