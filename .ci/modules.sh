#!/usr/bin/env bash
# Fails when the modules of the tree are not those given: one that the Makefile does not name is never tested.
#
# usage: modules.sh <module>...
set -euo pipefail

listed=$(printf '%s\n' "$@" | sort)
found=$(git ls-files --cached --others --exclude-standard -- 'go.mod' '**/go.mod' | sed 's|/go.mod$||' | sort -u)
if [ "$listed" != "$found" ]; then
	echo "modules: the lists in the Makefile and the go.mod files of the tree differ (< Makefile, > tree):" >&2
	diff <(echo "$listed") <(echo "$found") >&2 || true
	exit 1
fi
