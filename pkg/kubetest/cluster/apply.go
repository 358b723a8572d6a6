package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"fairlead.dev/pkg/kubetest"
)

var crds = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// Apply does what kubectl apply --server-side --validate=strict does with manifests in YAML or JSON, without the cost of a process. It
// applies all objects, also after an error, and returns when the API server serves the kinds of applied CRDs.
func (c *Cluster) Apply(ctx context.Context, manifests string) error {
	objects, err := decodeManifests(manifests)
	if err != nil {
		return err
	}
	a, err := c.newApplier()
	if err != nil {
		return err
	}
	var errs []error
	var definitions []*unstructured.Unstructured
	for _, o := range objects {
		if err := a.applyObject(ctx, o); err != nil {
			errs = append(errs, fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err))
		} else if o.GroupVersionKind().GroupKind() == crds {
			definitions = append(definitions, o)
		}
	}
	for _, crd := range definitions {
		if err := a.waitServed(ctx, crd); err != nil {
			errs = append(errs, fmt.Errorf("CRD %s: %w", crd.GetName(), err))
		}
	}
	return errors.Join(errs...)
}

// decodeManifests returns the objects in manifests, and those in lists.
func decodeManifests(manifests string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096)
	for {
		var o unstructured.Unstructured
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("decode manifests: %w", err)
		}
		if len(o.Object) == 0 {
			continue // an empty document
		}
		if !o.IsList() {
			objects = append(objects, &o)
			continue
		}
		if err := o.EachListItem(func(item runtime.Object) error {
			objects = append(objects, item.(*unstructured.Unstructured))
			return nil
		}); err != nil {
			return nil, fmt.Errorf("decode %s: %w", o.GetKind(), err)
		}
	}
}

// applier applies objects of any kind that the API server serves.
type applier struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func (c *Cluster) newApplier() (*applier, error) {
	config := c.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return &applier{client: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))}, nil
}

func (a *applier) applyObject(ctx context.Context, o *unstructured.Unstructured) error {
	gvk := o.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace && o.GetNamespace() == "" {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = a.client.Resource(mapping.Resource).Namespace(o.GetNamespace()).
		Patch(ctx, o.GetName(), types.ApplyPatchType, raw,
			metav1.PatchOptions{FieldManager: "kubectl", FieldValidation: metav1.FieldValidationStrict})
	return err
}

// waitServed waits until discovery shows the kind of a CRD, which is later than the condition Established.
func (a *applier) waitServed(ctx context.Context, crd *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	var missing error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, kubetest.Patience, true, func(context.Context) (bool, error) {
		a.mapper.Reset()
		for _, v := range versions {
			if v, ok := v.(map[string]any); ok && v["served"] == true {
				if _, missing = a.mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind}, fmt.Sprint(v["name"])); missing != nil {
					return false, nil //nolint:nilerr // until it is there
				}
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("the API server does not serve it: %w: %w", err, missing)
	}
	return nil
}
