#!/usr/bin/env bash
# Copies a test binary for `go test -exec` into the folder KEEP instead of running it, with a script that runs it.
#
# usage: keep.sh <binary> [argument]...
set -euo pipefail

file=$(mktemp "${KEEP:?}/XXXXXXXX.test")
cp "$1" "$file"
chmod +x "$file"
shift
{
	echo '#!/bin/sh'
	printf 'cd %q && exec %q' "$PWD" "$file"
	printf ' %q' "$@"
	echo
} >"$file.sh"
chmod +x "$file.sh"
