#!/usr/bin/env bash
# Builds the programs of the demo.
#
# usage: demo.sh <bin> <module>=<package>...
set -euo pipefail
bin=$1
shift
go=$(cd "$(dirname "$0")" && pwd)/go.sh
export GOWORK=off CGO_ENABLED=0

begun=$SECONDS
for program; do
	module=${program%%=*} package=${program#*=}
	# A program that is up to date takes a second: only the first build is worth a line.
	name=$(basename "$package")
	[ "$name" != . ] || name=$(basename "$module")
	[ -x "$bin/$name" ] || echo "demo: compiling $name" >&2
	(cd "$module" && "$go" build -o "$bin/$name" "$package")
done
[ $((SECONDS - begun)) -lt 10 ] || echo "demo: compiled in $((SECONDS - begun)) s" >&2
