#!/usr/bin/env bash
# Checks a chart: lint, rendering with its defaults and with each file of its ci folder (strict, against its schema), and
# that the schema refuses a value nobody has defined. A chart whose defaults lack something that is required has it in ci.
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
	"${helm[@]}" template "$name" "$chart" --namespace chart-test --values "$values" >/dev/null
	if "${helm[@]}" template "$name" "$chart" --values "$values" --set valueThatNobodyDefined=1 >/dev/null 2>&1; then
		echo "chart $name: values.schema.json accepts a value that nobody has defined" >&2
		exit 1
	fi
	echo "chart $name: ok with ${values#"$chart"/}"
done
