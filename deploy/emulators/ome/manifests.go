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

// CRDs returns the manifest of the CRDs of a release. That of InferenceServices has the small form that OME ships: spec and
// status accept any fields, and server-side apply replaces each as a whole. Release 1.3 adds InferenceReplicas.
func CRDs(r Release) string {
	if r == Release13 {
		return serviceCRD + "---\n" + replicaCRD
	}
	return serviceCRD
}

// Config returns the manifest of OME's ConfigMap with the values that the chart of a release ships. It is for namespace ome,
// which must exist. OME makes no ingresses by these values, and its domain is that of the cluster. Keys other than ingress and
// deploy, which have nothing to do with routes, are left out.
func Config(r Release) string {
	if r == Release13 {
		return config13
	}
	return config12
}
