#!/usr/bin/env bash
# Builds an image of a program for this machine's platform, like a release, and loads it into the store <bin>/images.
#
# usage: load.sh <bin> <name:tag> <binary> [flag of image build]...
set -euo pipefail
bin=$1 reference=$2 binary=$3
shift 3

layout=$(mktemp -d "$bin/.layout-XXXXXX")
trap 'rm -rf "$layout"' EXIT
name=${reference##*/}
"$bin/image" build "$layout/oci" --name "${name%%:*}" --version "${name#*:}" --binary "linux/$(go env GOARCH)=$binary" \
	--compress=false --attest=false "$@" >/dev/null
"$bin/localkube" image load --store "$bin/images" "$layout/oci" "$reference" >/dev/null
