#!/usr/bin/env bash
# Builds the image envoyproxy/envoy from an Envoy binary, with the C library of this machine, against which the binary is linked.
# Like upstream's image it has no user, so it runs as root unless the pod sets another user, and its entrypoint accepts the
# arguments of a pod. Upstream's entrypoint is a script that drops root before it starts Envoy; this one is Envoy itself.
#
# usage: image.sh <bin> <binary> <version>
set -euo pipefail
bin=$1 binary=$2 version=$3

# Output of the dynamic linker: "libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x...)" and the linker itself.
files=()
while read -r library; do
	files+=(--file "$library=$library")
done < <(ldd "$binary" | grep -oE '/[^ ]+' | grep -vx "$binary" | sort -u)
"$(dirname "$0")/../load.sh" "$bin" "envoyproxy/envoy:v$version" "$binary" --path /usr/local/bin/envoy "${files[@]}" \
	--user "" --cmd -c --cmd /etc/envoy/envoy.yaml
