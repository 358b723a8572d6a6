#!/usr/bin/env bash
# Runs each fuzz test of the module in the working directory for a while; the go command takes one at a time. Give the while as a
# number of runs (5000x): the go command now and then takes the end of a time (10s) for a failure.
#
# usage: fuzz.sh <runs or time of each>
set -euo pipefail

time=$1
mapfile -t tests < <(grep -rE --include='*_test.go' --only-matching '^func Fuzz\w+' . | sort)
for test in "${tests[@]}"; do
	go test -tags=system,long -run '^$' -fuzz "^${test##*func }\$" -fuzztime "$time" "$(dirname "${test%%:*}")"
done
