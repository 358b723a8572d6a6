#!/usr/bin/env bash
# Makes an image of the program that the module in a folder has as its tool, in the versions of its go.mod. The program goes
# to <bin>, under the name of the folder, and into the store <bin>/images. Everything is pinned, so once is enough; from
# nothing it compiles for minutes. Path and user are those of the program's own image.
#
# usage: module-image.sh <folder> <bin> <image> <path in the image> <user> [linker flag]...
set -euo pipefail
folder=$1 bin=$2 image=$3 path=$4 user=$5
shift 5
name=$(basename "$folder")
load=$(cd "$(dirname "$0")" && pwd)/load.sh
cd "$folder"
export GOWORK=off CGO_ENABLED=0 GOFLAGS='-trimpath -buildvcs=false'

program=$(sed -n 's/^tool //p' go.mod)
echo "$name: building $image (minutes from nothing)" >&2
begun=$SECONDS
mkdir -p "$bin"
go build -p "${BUILD_JOBS:-$(nproc)}" -ldflags "-s -w $*" -o "$bin/$name" "$program"
"$load" "$bin" "$image" "$bin/$name" --path "$path" --user "$user"
echo "$name: built in $((SECONDS - begun)) s" >&2
