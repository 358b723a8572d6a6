package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/services/nodepool-ingress/internal/profile"
)

// Object is an object of a pool, as it should be or as it is in the cluster.
type Object struct {
	Resource schema.GroupVersionResource
	Object   *unstructured.Unstructured
}

// Key identifies an object of a YurtIngress.
type Key struct {
	Resource schema.GroupVersionResource
	Name     string
}

// Key returns the key of an object.
func (o *Object) Key() Key { return Key{Resource: o.Resource, Name: o.Object.GetName()} }

// PoolName returns the pool that an object was written for.
func (o *Object) PoolName() string { return o.Object.GetLabels()[v1alpha1.LabelPool] }

// FindObject returns the object with a key, nil if there is none.
func FindObject(objects []Object, key Key) *unstructured.Unstructured {
	if i := slices.IndexFunc(objects, func(o Object) bool { return o.Key() == key }); i >= 0 {
		return objects[i].Object
	}
	return nil
}

// completeObjects converts the objects of a pool, adds the metadata that all objects share, and returns the revision of the pool. The
// Deployment has the revision as an annotation.
func completeObjects(owner *v1alpha1.YurtIngress, pool string, built []profile.Object) ([]Object, string, error) {
	objects := make([]Object, 0, len(built))
	for _, typed := range built {
		kind, known := kindOf(typed.GetObjectKind().GroupVersionKind())
		if !known {
			return nil, "", fmt.Errorf("objects of kind %s are not allowed", quoteInput(typed.GetObjectKind().GroupVersionKind().String()))
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		if err != nil {
			return nil, "", fmt.Errorf("convert %s %s: %w", kind.Kind, typed.GetName(), err)
		}
		u := &unstructured.Unstructured{Object: content}
		delete(content, "status")
		removeNulls(content)
		addMetadata(u, owner, pool)
		objects = append(objects, Object{Resource: kind.Resource, Object: u})
	}
	revision, err := revisionOf(objects)
	if err != nil {
		return nil, "", err
	}
	for i := range objects {
		if objects[i].Resource == Deployments {
			annotations := objects[i].Object.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[v1alpha1.AnnotationRevision] = revision
			objects[i].Object.SetAnnotations(annotations)
		}
	}
	return objects, revision, nil
}

// addMetadata adds the labels and the owner that all objects have.
func addMetadata(u *unstructured.Unstructured, owner *v1alpha1.YurtIngress, pool string) {
	labels := u.GetLabels()
	labels[v1alpha1.LabelManagedBy] = v1alpha1.Manager
	labels[v1alpha1.LabelOwner] = string(owner.UID)
	labels[v1alpha1.LabelPool] = pool
	u.SetLabels(labels)
	u.SetOwnerReferences([]metav1.OwnerReference{OwnerReference(owner.Name, owner.UID)})
}

// OwnerReference returns the controller reference of objects of a YurtIngress. It does not block the deletion of the owner: the finalizer
// does.
func OwnerReference(name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "YurtIngress", Name: name, UID: uid, Controller: ptr.To(true),
	}
}

// removeNulls removes nulls, which would own fields without a value.
func removeNulls(content map[string]any) {
	for key, value := range content {
		switch value := value.(type) {
		case nil:
			delete(content, key)
		case map[string]any:
			removeNulls(value)
		case []any:
			for _, element := range value {
				if element, ok := element.(map[string]any); ok {
					removeNulls(element)
				}
			}
		}
	}
}

// revisionOf returns a hash of objects. The number of replicas is not part of it: pools scale without a roll-out. The strategy is not part
// of it, either: it can depend on the number of nodes, and has an effect only on the next change.
func revisionOf(objects []Object) (string, error) {
	sum := sha256.New()
	for i := range objects {
		content := objects[i].Object.Object
		if objects[i].Resource == Deployments {
			content = objects[i].Object.DeepCopy().Object
			unstructured.RemoveNestedField(content, "spec", "replicas")
			unstructured.RemoveNestedField(content, "spec", "strategy")
		}
		text, err := json.Marshal(content)
		if err != nil {
			return "", fmt.Errorf("encode %s: %w", objects[i].Object.GetName(), err)
		}
		sum.Write(text)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// equalJSON compares values by their JSON, which sorts keys. Numbers of objects in code and of decoded objects have different types.
func equalJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}
