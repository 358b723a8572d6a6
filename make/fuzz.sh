#!/usr/bin/env bash
# Runs each fuzz test of the module in the working directory for a short time; the go command takes one at a time.
#
# usage: fuzz.sh <time of each>
set -euo pipefail

time=$1
mapfile -t tests < <(grep -rE --include='*_test.go' --only-matching '^func Fuzz\w+' . | sort)
for test in "${tests[@]}"; do
	go test -run '^$' -fuzz "^${test##*func }\$" -fuzztime "$time" "$(dirname "${test%%:*}")"
done
