package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the group and version of the objects.
var SchemeGroupVersion = schema.GroupVersion{Group: "apps.openyurt.io", Version: "v1alpha1"}

// AddToScheme adds the objects to a scheme.
var AddToScheme = (&runtime.SchemeBuilder{addKnownTypes}).AddToScheme

// Resource returns the name of a resource with its group.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion, &YurtIngress{}, &YurtIngressList{})
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
