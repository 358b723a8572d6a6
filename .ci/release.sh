#!/usr/bin/env bash
# Collects a release in <bin>/release/<version>: the packed charts with their checksums, the release notes, and the digests of the images,
# which are in <bin>/oci already. It publishes nothing.
#
# usage: release.sh <bin> <version> <helm> <chart>...
set -euo pipefail
bin=$1 version=$2 helm=$3
shift 3

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
(cd "$out" && sha256sum -- *.tgz >SHA256SUMS)
for layout in "$bin"/oci/*/; do
	digest=$(grep -o 'sha256:[0-9a-f]*' "$layout/index.json" | head -n 1) # of the index over the platforms, which comes first
	echo "$(basename "$layout"):$version@$digest"
done >"$out/IMAGES"
echo "release: $out"
