#!/usr/bin/env bash
# Pushes the images of the whole-system tests to a registry, for a cluster that this repository did not start.
#
# usage: push.sh <bin> <registry> <name>... -- <name of an image with a next version>...
set -euo pipefail
bin=$1 registry=$2
shift 2
if [ -z "$registry" ]; then
	echo "e2e-push: say where to: make e2e-push REGISTRY=host/path" >&2
	exit 2
fi

layouts=$(mktemp -d "$bin/.layout-XXXXXX")
trap 'rm -rf "$layouts"' EXIT
push() { # name, tag, binary, flags of image build
	local layout=$layouts/$1-$2
	"$bin/image" build "$layout" --name "$1" --version "$2" --binary "linux/$(go env GOARCH)=$3" --attest=false "${@:4}" >/dev/null
	"$bin/image" push --registry "$registry" --version "$2" ${INSECURE:+--insecure} "$layout"
	rm -rf "$layout"
}

tag=race
for name; do
	if [ "$name" = -- ]; then
		tag=race-next
		continue
	fi
	push "$name" "$tag" "$bin/$tag/$name" --env GORACE=halt_on_error=1
done
for name in endpoint-picker modelserver; do # without the race detector, which needs too much memory for a test of limits
	push "$name" dev "$bin/$name"
done
push ingress-reconciler previous "$bin/previous/ingress-reconciler"
