package ingress_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

const (
	domain = "example.test"

	exposedCondition = "fairlead.dev/Exposed"
	managed          = "fairlead.dev/managed-by=ingress-reconciler"
	completions      = "/v1/chat/completions"
)

// Kinds that the tests read or write.
var (
	inferenceServices = schema.GroupVersionResource{Group: "ome.io", Version: "v1beta1", Resource: "inferenceservices"}
	httpRoutes        = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}
	ingresses         = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}
	middlewareKind    = schema.GroupVersionResource{Group: "traefik.io", Version: "v1alpha1", Resource: "middlewares"}
	virtualServices   = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1beta1", Resource: "virtualservices"}
	inferencePools    = schema.GroupVersionResource{Group: "inference.networking.k8s.io", Version: "v1", Resource: "inferencepools"}

	written = []schema.GroupVersionResource{httpRoutes, ingresses, middlewareKind, virtualServices, inferencePools}
)

// fields are the fields of a configuration or of an object.
type fields map[string]any

// system is a whole system: OME's emulator, the ingress-reconciler and data planes.
type system struct {
	*cluster.Cluster

	client         dynamic.Interface
	envoy, traefik *world
	previous       map[string]bool // pods of the previous release
	term           sync.Mutex      // held by tests that replace the leader, or need the same one for a while

	mu        sync.Mutex // guards the configuration
	document  fields
	overrides map[string]fields // by namespace/name
	lasting   map[string]fields // overrides that configure does not replace
}

// newSystem installs OME, the previous release of the ingress-reconciler with the values of its example, Envoy Gateway, Traefik,
// and the admission webhook of ingress-nginx.
func newSystem(t *testing.T) *system {
	t.Helper()
	c := cluster.Start(t, stack.PublishTraefik("127.0.0.1:0"), stack.PublishGateway("127.0.0.1:0"), cluster.Audit)
	apply(t, c, "kinds.yaml")
	g, gctx := errgroup.WithContext(t.Context())
	g.Go(func() error { return stack.InstallOME(gctx, c, stack.EchoOME(tag)) })
	g.Go(func() error { return upgrade(gctx, c, stack.PreviousRelease()) })
	g.Go(func() error { return stack.InstallIngressNginxAdmission(gctx, c, tag) })
	g.Go(func() error { return stack.InstallEcho(gctx, c, tag, server, other) })
	g.Go(func() error { return installTraefik(gctx, c) })
	g.Go(func() error {
		if err := stack.InstallEnvoyGateway(gctx, c); err != nil {
			return err
		}
		return applyGateway(gctx, c)
	})
	require.NoError(t, g.Wait())
	s := systemOf(c)
	s.envoy = newWorld(c, c.Published[1])
	for _, p := range s.pods(t) {
		s.previous[p.Name] = true
	}
	return s
}

// newTraefikSystem installs OME, the ingress-reconciler with the values of its example, and Traefik.
func newTraefikSystem(t *testing.T) *system {
	t.Helper()
	c := cluster.Start(t, stack.PublishTraefik("127.0.0.1:0"))
	apply(t, c, "kinds.yaml")
	g, gctx := errgroup.WithContext(t.Context())
	g.Go(func() error { return stack.InstallOME(gctx, c, stack.EchoOME(tag)) })
	g.Go(func() error { return upgrade(gctx, c, stack.CurrentRelease(tag)) })
	g.Go(func() error { return stack.InstallEcho(gctx, c, tag, server, other) })
	g.Go(func() error { return installTraefik(gctx, c) })
	require.NoError(t, g.Wait())
	return systemOf(c)
}

// systemOf returns the system of a cluster whose first published address is that of Traefik.
func systemOf(c *cluster.Cluster) *system {
	return &system{
		Cluster: c, client: dynamic.NewForConfigOrDie(c.RESTConfig()), traefik: newWorld(c, c.Published[0]),
		previous: map[string]bool{}, overrides: map[string]fields{}, lasting: map[string]fields{},
	}
}

// installTraefik installs Traefik, with the address of a load balancer.
func installTraefik(ctx context.Context, c *cluster.Cluster) error {
	if err := stack.InstallTraefik(ctx, c); err != nil {
		return err
	}
	return stack.GiveAddress(ctx, c, types.NamespacedName{Namespace: stack.TraefikNamespace, Name: stack.Traefik}, address)
}

// apply applies a file of testdata.
func (s *system) apply(t *testing.T, name string) {
	t.Helper()
	apply(t, s.Cluster, name)
}

// applyGateway creates the Gateway of the example and waits until it is programmed.
func applyGateway(ctx context.Context, c *cluster.Cluster) error {
	if err := stack.ApplyExample(ctx, c, stack.IngressExamples, "gateway.yaml"); err != nil {
		return err
	}
	_, err := c.Kubectl(ctx, "-n", "gateways", "wait", "--for=condition=Programmed", "gateways.gateway.networking.k8s.io/public", stack.WaitTimeout)
	return err
}

// upgrade installs the ingress-reconciler, or upgrades it. The environment of its pods has their names.
func upgrade(ctx context.Context, c *cluster.Cluster, release stack.Release, args ...string) error {
	return stack.UpgradeReconciler(ctx, c, release, append([]string{
		"--force-conflicts", // over the configuration, which tests change in place
		"--set", "env[0].name=POD_NAME", "--set", "env[0].valueFrom.fieldRef.fieldPath=metadata.name",
	}, args...)...)
}

// entrance is a way to expose a service, and the data plane that serves it.
type entrance struct {
	name   string
	values fields // of the configuration
	plane  func(*system) *world
	at     string // its name in the condition
	object string // the Gateway, or the IngressClass
}

func throughEnvoy(s *system) *world   { return s.envoy }
func throughTraefik(s *system) *world { return s.traefik }

// The entrances.
var (
	envoyRoute     = entrance{name: "envoy-route", values: fields{"strategy": "httproute", "omeIngressGateway": "gateways/public"}, plane: throughEnvoy, at: "Gateway gateways/public", object: "gateways/public"}
	traefikRoute   = entrance{name: "traefik-route", values: fields{"strategy": "httproute", "omeIngressGateway": "traefik/traefik"}, plane: throughTraefik, at: "Gateway traefik/traefik", object: "traefik/traefik"}
	traefikIngress = entrance{name: "traefik-class", values: fields{"strategy": "ingress", "ingressClassName": "traefik"}, plane: throughTraefik, at: "IngressClass traefik", object: "traefik"}
	nginxIngress   = entrance{name: "nginx-class", values: fields{"strategy": "ingress", "ingressClassName": "nginx"}, plane: throughTraefik, at: "IngressClass nginx", object: "nginx"}

	entrances = []entrance{envoyRoute, traefikRoute, traefikIngress, nginxIngress}
)

// with returns the values of the entrance and more values.
func (e entrance) with(more fields) fields {
	all := maps.Clone(e.values)
	maps.Copy(all, more)
	return all
}

// configure replaces the configuration, and the overrides that are not lasting.
func (s *system) configure(t *testing.T, document fields, overrides map[types.NamespacedName]fields) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.document, s.overrides = document, map[string]fields{}
	for service, values := range overrides {
		s.overrides[service.String()] = values
	}
	s.writeConfiguration(t)
}

// override replaces the override of one service.
func (s *system) override(t *testing.T, service types.NamespacedName, values fields) {
	t.Helper()
	s.overrideAll(t, map[types.NamespacedName]fields{service: values})
}

// overrideAll replaces the overrides of several services.
func (s *system) overrideAll(t *testing.T, values map[types.NamespacedName]fields) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for service, v := range values {
		s.overrides[service.String()] = v
	}
	s.writeConfiguration(t)
}

// overrideForGood sets the override of one service until the end of the cluster.
func (s *system) overrideForGood(t *testing.T, service types.NamespacedName, values fields) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lasting[service.String()] = values
	s.writeConfiguration(t)
}

// whole returns the configuration with the overrides.
func (s *system) whole() fields {
	document := maps.Clone(s.document)
	overrides := []fields{}
	for _, all := range []map[string]fields{s.overrides, s.lasting} {
		for _, service := range slices.Sorted(maps.Keys(all)) {
			namespace, name, _ := strings.Cut(service, "/")
			one := fields{"namespaces": []string{namespace}, "names": []string{name}}
			maps.Copy(one, all[service])
			overrides = append(overrides, one)
		}
	}
	document["overrides"] = overrides
	return document
}

// writeConfiguration writes the configuration as JSON, which is YAML.
func (s *system) writeConfiguration(t *testing.T) {
	t.Helper()
	text, err := json.Marshal(s.whole())
	require.NoError(t, err)
	patch, err := json.Marshal(fields{"data": fields{"config": string(text)}})
	require.NoError(t, err)
	_, err = s.Clientset().CoreV1().ConfigMaps(stack.ReconcilerNamespace).Patch(t.Context(), stack.Reconciler, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}

// baseConfiguration returns a configuration in which overrides decide how services are exposed.
func baseConfiguration(hold time.Duration) fields {
	return fields{"ingressDomain": domain, "holdSeconds": int(hold / time.Second)}
}

// namespace creates a namespace. Its InferenceServices are deleted at the end of the test.
func (s *system) namespace(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, s.Apply(t.Context(), "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}"))
	t.Cleanup(func() {
		services := s.client.Resource(inferenceServices).Namespace(name)
		require.NoError(t, services.DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{}))
	})
}

// create creates an InferenceService.
func (s *system) create(ctx context.Context, name types.NamespacedName, labels map[string]string, spec fields) error {
	raw, err := json.Marshal(fields{
		"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "spec": spec,
		"metadata": fields{"namespace": name.Namespace, "name": name.Name, "labels": labels},
	})
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		return err
	}
	_, err = s.client.Resource(inferenceServices).Namespace(name.Namespace).Create(ctx, u, metav1.CreateOptions{})
	return err
}

// patch changes an object.
func (s *system) patch(t *testing.T, kind schema.GroupVersionResource, name types.NamespacedName, patch fields) {
	t.Helper()
	text, err := json.Marshal(patch)
	require.NoError(t, err)
	_, err = s.client.Resource(kind).Namespace(name.Namespace).Patch(t.Context(), name.Name, types.MergePatchType, text, metav1.PatchOptions{})
	require.NoError(t, err)
}

// exposed returns the condition fairlead.dev/Exposed of a service.
func (s *system) exposed(ctx context.Context, name types.NamespacedName) (metav1.Condition, error) {
	u, err := s.client.Resource(inferenceServices).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return metav1.Condition{}, err
	}
	if c := exposedOf(u); c.Type != "" {
		return c, nil
	}
	return metav1.Condition{}, fmt.Errorf("%s has no condition %s", name, exposedCondition)
}

// exposedOf returns the condition fairlead.dev/Exposed, or the zero Condition.
func exposedOf(u *unstructured.Unstructured) metav1.Condition {
	var object struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &object); err != nil {
		return metav1.Condition{} // not an InferenceService
	}
	for _, c := range object.Status.Conditions {
		if c.Type == exposedCondition {
			return c
		}
	}
	return metav1.Condition{}
}

// awaitExposed waits until the condition says that an entrance accepted the service, and returns the URLs.
func (s *system) awaitExposed(t *testing.T, name types.NamespacedName, at string) (url string) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		c, err := s.exposed(t.Context(), name)
		require.NoError(collect, err)
		require.Equal(collect, metav1.ConditionTrue, c.Status, "%s: %s: %s", name, c.Reason, c.Message)
		require.Contains(collect, c.Message, at+": accepted", "%s", name)
		url, _, _ = strings.Cut(c.Message, ";")
	}, kubetest.Patience, tick)
	return url
}

// awaitReason waits until the condition is False with a reason.
func (s *system) awaitReason(t *testing.T, name types.NamespacedName, want string) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		c, err := s.exposed(t.Context(), name)
		require.NoError(collect, err)
		require.Equal(collect, metav1.ConditionFalse, c.Status, "%s", name)
		require.Equal(collect, want, c.Reason, "%s", name)
	}, kubetest.Patience, tick)
}

// made is an object that the ingress-reconciler created.
type made = unstructured.Unstructured

// objects returns the objects of a service, of all kinds.
func (s *system) objects(ctx context.Context, name types.NamespacedName) ([]made, error) {
	var all []made
	for _, kind := range written {
		list, err := s.client.Resource(kind).Namespace(name.Namespace).List(ctx, metav1.ListOptions{LabelSelector: managed + ",fairlead.dev/inferenceservice=" + name.Name})
		if err != nil {
			return nil, err
		}
		all = append(all, list.Items...)
	}
	return all, nil
}

func uids(objects []made) []types.UID {
	var all []types.UID
	for i := range objects {
		all = append(all, objects[i].GetUID())
	}
	return all
}
