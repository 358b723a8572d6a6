package ownership

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Age is when an object was created, and its name, which decides between objects of the same second.
type Age struct {
	Created time.Time
	Name    types.NamespacedName
}

// AgeOf returns the age of an object.
func AgeOf(object metav1.Object) Age {
	return Age{
		Created: object.GetCreationTimestamp().Time,
		Name:    types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()},
	}
}

// Compare returns a negative number if a comes before b: the older object first, then the one whose "namespace/name" comes first in
// alphabetical order. This is the rule of the Gateway API for objects that conflict.
func (a Age) Compare(b Age) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name.String(), b.Name.String()))
}

// CompareAge compares the ages of two objects, for slices.SortFunc and slices.MinFunc.
func CompareAge[T metav1.Object](a, b T) int { return AgeOf(a).Compare(AgeOf(b)) }
