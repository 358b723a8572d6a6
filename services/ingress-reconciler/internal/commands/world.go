package commands

import (
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// connection holds the flags that select a cluster.
type connection struct {
	kube.Options

	transport http.RoundTripper // nil: that of the kubeconfig
}

// newClient returns a client for a sub-command.
func (c *connection) newClient(command string) (dynamic.Interface, error) {
	cfg, err := c.RESTConfig("fairlead-ingress-reconciler-" + command)
	if err != nil {
		return nil, err
	}
	cfg.Transport = c.transport
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return client, nil
}

// isService reports whether an object is an InferenceService of OME.
func isService(u *unstructured.Unstructured) bool {
	return u.GetKind() == "InferenceService" && u.GroupVersionKind().Group == isvc.Resource.Group
}

// identity identifies an object, independent of its API version.
type identity struct{ group, kind, namespace, name string }

func identityOf(u *unstructured.Unstructured) identity {
	return identity{u.GroupVersionKind().Group, u.GetKind(), u.GetNamespace(), u.GetName()}
}

// managedSelector selects the objects that the program wrote.
const managedSelector = render.LabelManagedBy + "=" + render.Manager
