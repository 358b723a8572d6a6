#!/usr/bin/env bash
# Runs a command that writes generated files and fails with the list of those that it changed: they were not committed as
# they should be. Changes that were there before do not count, so it can be run at any time. It also fails for markers of a
# merge that is not resolved.
#
# usage: verify.sh <command> [argument]...
set -euo pipefail

if git grep -nE '^(<{7}|>{7}) ' -- . ; then
	echo "verify: these lines are left over from a merge: resolve it" >&2
	exit 1
fi

state() {
	git ls-files --cached --others --exclude-standard -z | sort -z | while IFS= read -rd '' file; do
		[ -f "$file" ] && printf '%s %s\n' "$(git hash-object --no-filters -- "$file")" "$file"
	done
}

before=$(state)
"$@"
after=$(state)
if [ "$before" != "$after" ]; then
	echo "verify: not up to date, commit what the command above has changed:" >&2
	comm -3 <(sort <<<"$before") <(sort <<<"$after") | awk '{ print "  " $2 }' | sort -u >&2
	exit 1
fi
