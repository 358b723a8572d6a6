#!/usr/bin/env bash
# Generates what follows from the types of pkg/apis: deep copies, the client, and the CRDs of the charts.
#
# usage: api.sh <deepcopy-gen> <client-gen> <controller-gen>
set -euo pipefail

deepcopy_gen=$1 client_gen=$2 controller_gen=$3
root=$PWD
export GOWORK=off

cd pkg
header=$(mktemp)
trap 'rm -f "$header"' EXIT
"$deepcopy_gen" --output-file zz_generated.deepcopy.go --go-header-file "$header" ./apis/...
"$client_gen" --clientset-name versioned --input-base '' --input fairlead.dev/pkg/apis/fairlead/v1alpha1,fairlead.dev/pkg/apis/llmd/v1alpha1 --plural-exceptions '' \
	--output-pkg fairlead.dev/pkg/client/clientset --output-dir client/clientset --go-header-file "$header"
"$controller_gen" crd paths=./apis/fairlead/... output:crd:dir="$root/charts/backendset-syncer/crds"
"$controller_gen" crd paths=./apis/llmd/... output:crd:dir="$root/charts/variant-autoscaler/crds"
"$controller_gen" crd paths=./apis/openyurt/... output:crd:dir="$root/charts/nodepool-ingress/crds"
