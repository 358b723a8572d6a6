#!/usr/bin/env bash
# Builds a tool under a name that carries its version.
#
# usage: tool.sh <file> <package>@<version>
set -euo pipefail

file=$1 package=$2
mkdir -p "$(dirname "$file")"
dir=$(mktemp -d "$(dirname "$file")/.tool-XXXXXX")
trap 'rm -rf "$dir"' EXIT
echo "installing $package"
GOWORK=off GOBIN=$dir "$(dirname "$0")/go.sh" install "$package"
mv "$dir"/* "$file"
