package ome

import (
	_ "embed" // for the manifests
)

var (
	//go:embed manifests/crd.yaml
	serviceCRD string
	//go:embed manifests/replicas.yaml
	replicaCRD string
	//go:embed manifests/config-1.2.yaml
	config12 string
	//go:embed manifests/config-1.3.yaml
	config13 string
)

// CRDs returns the manifest of the CRDs of a release. The CRD of InferenceServices has the small form that OME ships: spec and
// status accept any fields, and server-side apply replaces each of them as a whole. Release 1.3 adds InferenceReplicas.
func CRDs(r Release) string {
	if r == Release13 {
		return serviceCRD + "---\n" + replicaCRD
	}
	return serviceCRD
}

// Config returns the manifest of OME's ConfigMap with the values of the chart of a release. Its namespace is ome, which must
// exist. With these values OME creates no Ingresses, and uses the domain of the cluster. The manifest has only the keys ingress
// and deploy, because the other keys do not affect routes.
func Config(r Release) string {
	if r == Release13 {
		return config13
	}
	return config12
}
