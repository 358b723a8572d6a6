#!/usr/bin/env bash
# Copies the charts of Envoy Gateway and Envoy AI Gateway from their modules to the folder $1, and fills in values as their
# releases do: the values of the former are a template, the images of the latter have the tag "latest".
set -euo pipefail
out=$1
cd "$(dirname "$0")"
export GOWORK=off

mkdir -p "$out"
new=$(mktemp -d "$out/.charts-XXXXXX")
trap 'chmod -R u+w "$new" && rm -rf "$new"' EXIT

folder() { # of a module, downloaded
	(cd "$1" && go mod download "$2" && go list -m -f '{{.Dir}}' "$2")
}
version() {
	(cd "$1" && go list -m -f '{{.Version}}' "$2")
}

gateway=github.com/envoyproxy/gateway
ai_gateway=github.com/envoyproxy/ai-gateway
cp -r "$(folder envoy-gateway $gateway)/charts/gateway-helm" "$new/gateway-helm"
charts=$(folder ai-gateway $ai_gateway)/manifests/charts
cp -r "$charts/ai-gateway-crds-helm" "$charts/ai-gateway-helm" "$new"
chmod -R u+w "$new"

values=$new/gateway-helm/values
# shellcheck disable=SC2016 # the variables are those of the chart
sed -e "s|\${GatewayImage}|docker.io/envoyproxy/gateway:$(version envoy-gateway $gateway)|" \
	-e 's|${GatewayImagePullPolicy}|IfNotPresent|' "$values.tmpl.yaml" >"$values.yaml"
# shellcheck disable=SC2016
if grep -n '\${' "$values.yaml" >&2; then
	echo "gateway-charts: the values of Envoy Gateway have another variable" >&2
	exit 1
fi
sed -i "s|^appVersion:.*|appVersion: $(version ai-gateway $ai_gateway)|" "$new/ai-gateway-helm/Chart.yaml"
for chart in gateway-helm ai-gateway-crds-helm ai-gateway-helm; do
	rm -rf "${out:?}/$chart"
	mv "$new/$chart" "$out/$chart"
done
