#!/usr/bin/env bash
# Builds the OCI layout of each image into <oci>/<name>: a static program for each platform, compiled into <bin>/<os>-<arch>, with an
# SBOM and the provenance. The same commit and Go release give the same digests on every machine.
#
# usage: LDFLAGS=... SOURCE_URL=... images.sh <bin> <oci> <version> <commit> <os/arch,...> <name>=<module>=<package>...
set -euo pipefail
bin=$1 oci=$2 version=$3 commit=$4
IFS=, read -ra platforms <<<"$5"
shift 5
go=$(cd "$(dirname "$0")" && pwd)/go.sh
export GOWORK=off CGO_ENABLED=0

# A build of changed files is not a build of the commit.
revision=$commit
[ -z "$(git status --porcelain 2>/dev/null)" ] || revision=$commit-dirty

# description prints that of the chart of a service.
description() {
	case $1 in
	endpoint-picker-replay) echo "Plays recordings of the endpoint-picker in virtual time, to compare configurations" ;;
	modelserver) echo "Simulated model server of Fairlead, for tests" ;;
	*) sed -n 's/^description: //p' "charts/$1/Chart.yaml" ;;
	esac
}

for image; do
	IFS='=' read -r name module package <<<"$image"
	binaries=()
	for platform in "${platforms[@]}"; do
		file=$bin/${platform%%/*}-${platform#*/}/$name
		mkdir -p "$(dirname "$file")"
		(cd "$module" && GOOS=${platform%%/*} GOARCH=${platform#*/} "$go" build -ldflags "$LDFLAGS" -o "$file" "$package")
		binaries+=(--binary "$platform=$file")
	done
	digest=$("$bin/image" build "$oci/$name" --name "$name" "${binaries[@]}" --version "$version" --revision "$revision" \
		--source "$SOURCE_URL" --licenses Apache-2.0 --description "$(description "$name")")
	echo "images: $name:$version@$digest"
done
