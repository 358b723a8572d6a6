// Package v1alpha1 contains the API objects of the group llmd.ai. Its schema accepts objects of the released versions of the workload
// variant autoscaler of llm-d (v0.4 to v0.8), unchanged.
//
// +k8s:deepcopy-gen=package
// +groupName=llmd.ai
package v1alpha1
