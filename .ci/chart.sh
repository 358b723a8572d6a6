#!/usr/bin/env bash
# Checks a chart: lint with each file of values in its folder ci (strict, against its schema), without such files with its
# defaults, and that the schema refuses an unknown value. A chart whose defaults lack a required value has it in ci. The tests in
# deploy/charts validate what a chart renders.
#
# usage: chart.sh "<helm command>" <chart folder>
set -euo pipefail

read -ra helm <<<"$1"
chart=$2
name=$(basename "$chart")

if [ ! -f "$chart/values.schema.json" ]; then
	echo "chart $name: values.schema.json is missing" >&2
	exit 1
fi

shopt -s nullglob
value_files=("$chart"/ci/*.yaml)
[ ${#value_files[@]} -gt 0 ] || value_files=("$chart/values.yaml")

for values in "${value_files[@]}"; do
	"${helm[@]}" lint --strict --quiet --values "$values" "$chart"
	if "${helm[@]}" template "$name" "$chart" --values "$values" --set unknownValue=1 >/dev/null 2>&1; then
		echo "chart $name: values.schema.json accepts an unknown value" >&2
		exit 1
	fi
	echo "chart $name: ok with ${values#"$chart"/}"
done
