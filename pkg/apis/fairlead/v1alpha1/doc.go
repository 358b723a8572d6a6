// Package v1alpha1 contains the API objects of the group fairlead.dev.
//
// +k8s:deepcopy-gen=package
// +groupName=fairlead.dev
package v1alpha1
