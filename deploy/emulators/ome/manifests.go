package ome

import (
	_ "embed" // for the manifests
)

var (
	//go:embed manifests/crd.yaml
	crd string
	//go:embed manifests/config.yaml
	config string
)

// CRD returns the manifest of InferenceServices in the small form that OME ships: spec and status may hold anything, and
// each is one value to server-side apply.
func CRD() string { return crd }

// Config returns the manifest of OME's ConfigMap with the values that it ships, in namespace ome, which must exist. It makes
// no ingresses, and its domain is the cluster's own.
func Config() string { return config }
