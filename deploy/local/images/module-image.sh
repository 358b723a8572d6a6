#!/usr/bin/env bash
# Makes an image of the program that the module in a folder has as its tool, in the versions of its go.mod. The program goes
# to <bin>, under the name of the folder, and into the store <bin>/images. Everything is pinned, so once is enough; from
# nothing it compiles for minutes.
#
# usage: module-image.sh <folder> <bin> <image> <path in the image> [linker flag]...
set -euo pipefail
folder=$1 bin=$2 image=$3 path=$4
shift 4
name=$(basename "$folder")
cd "$folder"
export GOWORK=off CGO_ENABLED=0 GOFLAGS='-trimpath -buildvcs=false'

program=$(sed -n 's/^tool //p' go.mod)
echo "$name: building $image (minutes from nothing)" >&2
begun=$SECONDS
mkdir -p "$bin"
go build -p "${BUILD_JOBS:-$(nproc)}" -ldflags "-s -w $*" -o "$bin/$name" "$program"
"$bin/localkube" image add --store "$bin/images" "$image" --file "$bin/$name=$path" --entrypoint "$path" >/dev/null
echo "$name: built in $((SECONDS - begun)) s" >&2
