#!/usr/bin/env bash
# Builds the conformance suite of the Gateway API Inference Extension and the echo server that its tests use, as images in the store
# <bin>/images. Their versions are pinned in go.mod, so it runs once; a clean build takes minutes.
#
# The suite is upstream's, with its embedded manifests. These name two images: the echo server and the endpoint picker. The commit in
# the tag of the echo server is not on the Go module proxy, so the one of the Gateway API release that the suite requires is built.
#
# usage: images.sh <bin> <image of the suite> <image of the echo server> <image of the endpoint picker>
set -euo pipefail
bin=$1 suite=$2 echo=$3 picker=$4
images=$(cd "$(dirname "$0")/.." && pwd)
load=$images/load.sh
go=$images/../../../.ci/go.sh
cd "$(dirname "$0")"
export GOWORK=off

go mod download sigs.k8s.io/gateway-api-inference-extension/conformance
manifests=$(go list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api-inference-extension/conformance)
named=$(grep -rhoP --include='*.yaml' --exclude-dir=reports '^\s*image:\s*\K\S+' "$manifests" | sort -u)
if [ "$named" != "$(printf '%s\n' "$echo" "$picker" | sort -u)" ]; then
	printf 'conformance: update the names of the images in local.mk: the manifests of the suite name\n%s\n' "$named" >&2
	exit 1
fi

echo "conformance: building the suite and its echo server (minutes from nothing)" >&2
begun=$SECONDS
mkdir -p "$bin/conformance"
"$go" test -c -ldflags "-s -w" -o "$bin/conformance/suite" .
"$go" build -ldflags "-s -w" -o "$bin/conformance/echo-basic" "$(sed -n 's/^tool //p' go.mod)"
"$load" "$bin" "$echo" "$bin/conformance/echo-basic"
"$load" "$bin" "$suite" "$bin/conformance/suite"
echo "conformance: built in $((SECONDS - begun)) s" >&2
