// Package v1alpha1 contains the API objects of the group apps.openyurt.io that the nodepool-ingress defines: YurtIngress. Its schema accepts
// objects of the released versions of OpenYurt's operator (yurt-app-manager v0.5, v0.6 and later), unchanged.
//
// +k8s:deepcopy-gen=package
// +groupName=apps.openyurt.io
package v1alpha1
