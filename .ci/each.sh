#!/usr/bin/env bash
# Runs a command in each module and says how long it took there. All modules are gone through; it fails if one did.
# Modules see their own go.mod and not the workspace: what is checked here is what is released.
#
# usage: each.sh <label> "<module>..." <command> [argument]...
set -euo pipefail

label=$1
read -ra modules <<<"$2"
shift 2

export GOWORK=off
failed=()
for module in "${modules[@]}"; do
	begun=$SECONDS
	(cd "$module" && "$@") || failed+=("$module")
	printf '%s %s: %d s\n' "$label" "$module" $((SECONDS - begun))
done
if [ ${#failed[@]} -gt 0 ]; then
	printf '%s failed in: %s\n' "$label" "${failed[*]}" >&2
	exit 1
fi
