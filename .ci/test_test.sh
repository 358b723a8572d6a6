#!/usr/bin/env bash
# Tests test.sh: a failed test fails the run, except in quarantine.
set -euo pipefail
cd "$(dirname "$0")"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/a" "$dir/b"
echo "module example.com/m" >"$dir/go.mod"
cat >"$dir/a/a_test.go" <<'GO'
package a

import "testing"

func TestBroken(t *testing.T) { t.Error("broken") }

func TestSound(t *testing.T) {}
GO
cat >"$dir/b/b_test.go" <<'GO'
package b

import (
	"os"
	"testing"
)

func TestBroken(t *testing.T) {
	if os.Getenv("BROKEN") != "" {
		t.Error("a test of the same name in another package")
	}
}
GO

failed=0
expect() { # wanted exit status, wanted text, entries of the quarantine
	local status=0 out
	printf '%s\n' "$3" >"$dir/quarantine.txt"
	out=$(cd "$dir" && GOWORK=off QUARANTINE=$dir/quarantine.txt PACKAGES='' RUN='' "$OLDPWD/test.sh" whole 2>&1) || status=$?
	if [ $status != "$1" ] || ! grep -q "$2" <<<"$out"; then
		printf 'test.sh with quarantine "%s": status %s, want %s and "%s":\n%s\n' "$3" $status "$1" "$2" "$out" >&2
		failed=1
	fi
}

entry="2026-01-02 example.com/m/a TestBroken"
expect 1 "^--- FAIL: TestBroken" "# none"
expect 0 "quarantine: TestBroken of example.com/m/a FAILED again" "$entry"
BROKEN=1 expect 1 "a test of the same name in another package" "$entry"
expect 1 "^--- FAIL: TestBroken" "2026-01-02 example.com/m/b TestBroken"
expect 1 "^--- FAIL: TestBroken" "2026-01-02 example.com/other/a TestBroken"
exit $failed
