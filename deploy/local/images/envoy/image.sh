#!/usr/bin/env bash
# Makes the image envoyproxy/envoy of a version of an Envoy binary, with the C library of this machine, which the binary is linked
# against.
#
# usage: image.sh <localkube> <store> <binary> <version>
set -euo pipefail
localkube=$1 store=$2 binary=$3 version=$4

# What the dynamic linker names: "libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x...)" and the linker itself.
files=(--file "$binary=/envoy")
while read -r library; do
	files+=(--file "$library=$library")
done < <(ldd "$binary" | grep -oE '/[^ ]+' | grep -vx "$binary" | sort -u)
"$localkube" image add --store "$store" "envoyproxy/envoy:v$version" "${files[@]}" --entrypoint /envoy >/dev/null
