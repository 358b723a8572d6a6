#!/usr/bin/env bash
# Builds an image of the tool of the module in a folder, with the versions of its go.mod. The program goes to <bin>, under the
# name of the folder, and the image to the store <bin>/images. All versions are pinned, so it runs once; a clean build takes
# minutes. Path and user are those of the program's official image.
#
# replaced.txt in the folder names source files that the build replaces, or leaves out: <module> <file of the module> [<file of the folder>].
# tags.txt has build tags. PROGRAM is the package of one tool of a module that has several.
#
# usage: module-image.sh <folder> <bin> <image> <path in the image> <user> [linker flag]...
set -euo pipefail
folder=$1 bin=$2 image=$3 path=$4 user=$5
shift 5
name=$(basename "$folder")${PROGRAM:+-$(basename "$PROGRAM")}
here=$(cd "$(dirname "$0")" && pwd)
load=$here/load.sh
go=$here/../../../.ci/go.sh
cd "$folder"
export GOWORK=off

program=${PROGRAM:-$(sed -n 's/^tool //p' go.mod)}
echo "$name: building $image (minutes from nothing)" >&2
begun=$SECONDS
mkdir -p "$bin"
mod=()
if [ -f replaced.txt ]; then # in a copy of the module: an overlay cannot replace files of the module cache
	copy=$(mktemp -d)
	trap 'rm -rf "$copy"' EXIT
	cp go.mod go.sum "$copy/"
	while read -r module file with; do
		if [ ! -d "$copy/$module" ]; then
			go mod download "$module"
			mkdir -p "$(dirname "$copy/$module")"
			cp -r --no-preserve=mode "$(go list -m -f '{{.Dir}}' "$module")" "$copy/$module"
			go mod edit -replace="$module=$copy/$module" "$copy/go.mod"
		fi
		rm "$copy/$module/$file"
		[ -z "$with" ] || cp "$with" "$copy/$module/$file"
	done <replaced.txt
	mod=(-modfile "$copy/go.mod")
fi
tags=""
[ ! -f tags.txt ] || tags=$(<tags.txt)
"$go" build "${mod[@]}" -tags "$tags" -ldflags "-s -w $*" -o "$bin/$name" "$program"
"$load" "$bin" "$image" "$bin/$name" --path "$path" --user "$user"
echo "$name: built in $((SECONDS - begun)) s" >&2
