#!/usr/bin/env bash
# Makes the image envoyproxy/envoy of a version of an Envoy binary, with the C library of this machine, which the binary is linked
# against. As upstream's image it has no user, so that it runs as root unless the pod says otherwise, and its entrypoint takes the
# arguments of a pod. Upstream's is a script that leaves root before it starts Envoy; this one is Envoy itself.
#
# usage: image.sh <bin> <binary> <version>
set -euo pipefail
bin=$1 binary=$2 version=$3

# What the dynamic linker names: "libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x...)" and the linker itself.
files=()
while read -r library; do
	files+=(--file "$library=$library")
done < <(ldd "$binary" | grep -oE '/[^ ]+' | grep -vx "$binary" | sort -u)
"$(dirname "$0")/../load.sh" "$bin" "envoyproxy/envoy:v$version" "$binary" --path /usr/local/bin/envoy "${files[@]}" \
	--user "" --cmd -c --cmd /etc/envoy/envoy.yaml
