#!/usr/bin/env bash
# Writes the templates that charts share, from deploy/charts/templates: CHART stands for the name of the chart. edge-cache is a sidecar of
# other programs, and has only those for Prometheus' rules and the dashboard in common with the other charts.
set -euo pipefail
cd "$(dirname "$0")/.."

for source in deploy/charts/templates/*; do
	template=$(basename "$source")
	for chart in charts/*/; do
		case $chart$template in
		charts/edge-cache/prometheusrule.yaml | charts/edge-cache/dashboard.yaml) ;;
		charts/edge-cache/*) continue ;;
		esac
		{
			echo "{{- /* Generated from $source by make generate. DO NOT EDIT. */ -}}"
			sed "s/CHART/$(basename "$chart")/g" "$source"
		} >"$chart/templates/$template"
	done
done
