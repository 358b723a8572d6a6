#!/usr/bin/env bash
# Collects a release in <bin>/release/<version>: the packed charts, and the wheels of the picker, with their checksums, the release notes,
# and the digests of the images, which are in <bin>/oci already, as their programs are in <bin>/<os>-<arch>. It publishes nothing.
#
# usage: release.sh <bin> <version> <helm> <os/arch,...> <chart>...
set -euo pipefail
bin=$1 version=$2 helm=$3
IFS=, read -ra platforms <<<"$4"
shift 4

if ! [[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
	echo "release: $version is not a version such as v0.4.0 or v0.4.0-rc.1" >&2
	exit 2
fi
heading=$version
[[ $version != *-* ]] || heading=Unreleased
notes=$(awk -v heading="$heading" '/^## / { inside = ($2 == heading); next } inside' CHANGELOG.md)
if ! grep -q '[^[:space:]]' <<<"$notes"; then
	echo "release: CHANGELOG.md has no entries under \"## $heading\": add them first (docs/releases.md)" >&2
	exit 1
fi

out=$bin/release/$version
rm -rf "$out"
mkdir -p "$out"
printf '%s\n' "$notes" | sed '/./,$!d' >"$out/NOTES.md"
for chart; do
	"$helm" package "$chart" --version "${version#v}" --app-version "$version" --destination "$out" >/dev/null
done
for platform in "${platforms[@]}"; do
	"$(dirname "$0")/build_wheel.py" "$out" fairlead-endpoint-picker "$version" "$platform" "$bin/${platform/\//-}/endpoint-picker" >/dev/null
done
(cd "$out" && sha256sum -- *.tgz *.whl >SHA256SUMS)
for layout in "$bin"/oci/*/; do
	digest=$(grep -o 'sha256:[0-9a-f]*' "$layout/index.json" | head -n 1) # of the index over the platforms, which comes first
	echo "$(basename "$layout"):$version@$digest"
done >"$out/IMAGES"
echo "release: $out"
