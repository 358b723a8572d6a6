//go:build system

package flow

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(cluster.Suite{M: m, Stock: shared, Parallel: 8}) }

// shared are the API servers of all tests that need none of their own.
var shared = &cluster.Stock{Audit: true, Prepare: func(tb testing.TB, c *cluster.Cluster) { prepare(tb, c) }, Empty: empty}

var namespaces = []string{"ome", "fairlead", "gateways", ns, "others"}

// prepare creates the namespaces, and installs the CRDs of all kinds except those in without.
func prepare(t testing.TB, c *cluster.Cluster, without ...schema.GroupVersionResource) {
	t.Helper()
	for _, namespace := range namespaces {
		require.NoError(t, c.Apply(t.Context(), fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", namespace)))
	}
	manifests := []string{ome.CRDs(ome.Release12)}
	for resource, manifest := range crds(t) {
		if !slices.ContainsFunc(without, func(w schema.GroupVersionResource) bool { return w.Resource == resource }) {
			manifests = append(manifests, manifest)
		}
	}
	require.NoError(t, c.Apply(t.Context(), strings.Join(manifests, "\n---\n")))
}

// crds returns the manifests of the kinds that may be absent, by resource.
var crds = func() func(testing.TB) map[string]string {
	var (
		once sync.Once
		all  map[string]string
		err  error
	)
	return func(t testing.TB) map[string]string {
		t.Helper()
		once.Do(func() { all, err = readCRDs(context.Background()) })
		require.NoError(t, err)
		return all
	}
}()

func readCRDs(ctx context.Context) (map[string]string, error) {
	all := map[string]string{
		"middlewares": loose("traefik.io", "v1alpha1", "Middleware"),
		"services":    loose("serving.knative.dev", "v1", "Service"),
	}
	for resource, file := range map[string][2]string{
		"gatewayclasses": {"sigs.k8s.io/gateway-api", "config/crd/standard/gateway.networking.k8s.io_gatewayclasses.yaml"},
		"gateways":       {"sigs.k8s.io/gateway-api", "config/crd/standard/gateway.networking.k8s.io_gateways.yaml"},
		"httproutes":     {"sigs.k8s.io/gateway-api", "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"},
		"inferencepools": {
			"sigs.k8s.io/gateway-api-inference-extension", "config/crd/bases/inference.networking.k8s.io_inferencepools.yaml",
		},
		"virtualservices": {"istio.io/api", "kubernetes/customresourcedefinitions.gen.yaml"},
	} {
		out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", file[0]).Output()
		if err != nil {
			return nil, fmt.Errorf("find module %s: %w", file[0], err)
		}
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), file[1]))
		if err != nil {
			return nil, err
		}
		for manifest := range strings.SplitSeq(string(text), "\n---\n") {
			if strings.Contains(manifest, "name: "+resource+".") {
				all[resource] = manifest
			}
		}
		if all[resource] == "" {
			return nil, fmt.Errorf("%s of module %s has no CRD of %s", file[1], file[0], resource)
		}
	}
	return all, nil
}

// loose returns a CRD that accepts any fields.
func loose(group, version, kind string) string {
	plural := strings.ToLower(kind) + "s"
	return fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[4]s.%[1]s}, spec: {
		group: %[1]s, scope: Namespaced, names: {kind: %[3]s, plural: %[4]s}, versions: [{name: %[2]s, served: true, storage: true,
		schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`, group, version, kind, plural)
}

var (
	replicas    = schema.GroupVersionResource{Group: "ome.io", Version: "v1beta1", Resource: "inferencereplicas"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	leases      = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

	gatewayClasses = gateways.GroupVersion().WithResource("gatewayclasses")
	policies       = schema.GroupVersionResource{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies",
	}
	bindings = policies.GroupVersion().WithResource("validatingadmissionpolicybindings")
)

// empty deletes all objects that a test may have created. It deletes InferenceServices first, because they have OME's finalizer.
func empty(ctx context.Context, c *cluster.Cluster) error {
	client := dynamic.NewForConfigOrDie(c.RESTConfig())
	kinds := append([]schema.GroupVersionResource{isvc.Resource, replicas, deployments, configMaps, leases, gateways}, informers.Written...)
	kinds = append(kinds, gatewayClasses, ingressClasses, knativeServices, endpointSlices, bindings, policies)
	for {
		left := 0
		for _, kind := range kinds {
			n, err := deleteAll(ctx, client, kind)
			if err != nil {
				return err
			}
			left += n
		}
		if left == 0 {
			return nil
		}
		time.Sleep(tick)
	}
}

// deleteAll deletes the objects of a kind, and returns the number of objects that it found.
func deleteAll(ctx context.Context, client dynamic.Interface, kind schema.GroupVersionResource) (int, error) {
	list, err := client.Resource(kind).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil // the kind is not installed
	}
	if err != nil {
		return 0, fmt.Errorf("list %s: %w", kind.Resource, err)
	}
	n := 0
	for i := range list.Items {
		o := &list.Items[i]
		if o.GetNamespace() != "" && !slices.Contains(namespaces, o.GetNamespace()) {
			continue
		}
		n++
		if err := remove(ctx, client.Resource(kind).Namespace(o.GetNamespace()),
			o); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return n, fmt.Errorf("delete %s %s: %w", kind.Resource, o.GetName(), err)
		}
	}
	return n, nil
}

func remove(ctx context.Context, in dynamic.ResourceInterface, o *unstructured.Unstructured) error {
	if len(o.GetFinalizers()) > 0 {
		o.SetFinalizers(nil)
		if _, err := in.Update(ctx, o, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return in.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
}
