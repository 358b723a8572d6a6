package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// world is the objects that a command reads, from a cluster or from files.
type world struct {
	kinds   []string // of routes that may be written; nil: all
	objects []*unstructured.Unstructured
	served  func(schema.GroupVersionResource) bool
	skipped []string // messages about input that was left out
}

func (w *world) skip(format string, args ...any) {
	w.skipped = append(w.skipped, fmt.Sprintf(format, args...))
}

// configMap returns the value of a key of a ConfigMap.
func (w *world) configMap(name cache.ObjectName, key string) (string, bool) {
	for _, u := range w.objects {
		if u.GetAPIVersion() == "v1" && u.GetKind() == "ConfigMap" && u.GetNamespace() == name.Namespace && u.GetName() == name.Name {
			text, found, err := unstructured.NestedString(u.Object, "data", key)
			return text, found && err == nil
		}
	}
	return "", false
}

// isService reports whether an object is an InferenceService of OME.
func isService(u *unstructured.Unstructured) bool {
	return u.GetKind() == "InferenceService" && u.GroupVersionKind().Group == isvc.Resource.Group
}

// isOurs reports whether the program wrote an object.
func isOurs(u *unstructured.Unstructured) bool {
	return u.GetLabels()[render.LabelManagedBy] == render.Manager
}

// identity tells objects apart, whatever the version of their group.
type identity struct{ group, kind, namespace, name string }

func identityOf(u *unstructured.Unstructured) identity {
	return identity{u.GroupVersionKind().Group, u.GetKind(), u.GetNamespace(), u.GetName()}
}

// errNoManifest means that a document is not a Kubernetes manifest, such as the values of a Helm chart.
var errNoManifest = errors.New("the document is not a Kubernetes manifest")

// decodeManifest reads the next document. It returns nil for an empty one.
func decodeManifest(decoder *utilyaml.YAMLOrJSONDecoder) (*unstructured.Unstructured, error) {
	var raw json.RawMessage
	if err := decoder.Decode(&raw); err != nil {
		return nil, err //nolint:wrapcheck // the caller adds the name of the file
	}
	if text := bytes.TrimSpace(raw); len(text) == 0 || string(text) == "null" {
		return nil, nil //nolint:nilnil // an empty document is neither an object nor an error
	}
	var head metav1.TypeMeta
	if json.Unmarshal(raw, &head) != nil || head.APIVersion == "" || head.Kind == "" {
		return nil, errNoManifest
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	return u, nil
}

// ourSelector selects the objects that the program wrote.
const ourSelector = render.LabelManagedBy + "=" + render.Manager

// listAll lists the objects of resources that a selector of labels matches; an empty one matches all. It leaves out a resource
// that the cluster does not have. It also leaves out one that this user may not list, and prints that.
func listAll(ctx context.Context, client dynamic.Interface, resources []schema.GroupVersionResource, selector string, log io.Writer) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, resource := range resources {
		list, err := client.Resource(resource).List(ctx, metav1.ListOptions{LabelSelector: selector})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case apierrors.IsForbidden(err):
			fmt.Fprintf(log, "%s: skipped, because this user may not list them\n", resource.GroupResource())
			continue
		case err != nil:
			return nil, fmt.Errorf("list %s: %w", resource.GroupResource(), err)
		}
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
	}
	return objects, nil
}
