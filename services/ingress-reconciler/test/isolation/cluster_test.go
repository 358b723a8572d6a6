package isolation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"fairlead.dev/pkg/apply"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/controller"
	"fairlead.dev/services/ingress-reconciler/internal/dependents"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/metrics"
	"fairlead.dev/services/ingress-reconciler/internal/observe"
	"fairlead.dev/services/ingress-reconciler/internal/render"
	"fairlead.dev/services/ingress-reconciler/internal/semantics"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// cluster contains the Reconciler under test, and emulates an API server, data planes and a garbage collector in memory.
type cluster struct {
	t       *testing.T
	rng     *rand.Rand
	clock   *clocktesting.FakePassiveClock
	objects map[key]*unstructured.Unstructured
	uids    int

	observer   *observe.Observer
	reconciler *controller.Reconciler
	queue      map[cache.ObjectName]bool
	config     settings.Config
	afterWrite func(what string)
	known      *semantics.World // World of the objects; nil after a change
}

type key struct {
	kind string
	name types.NamespacedName
}

func keyOf(o *unstructured.Unstructured) key {
	return key{o.GetKind(), types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}}
}

func newCluster(t *testing.T, rng *rand.Rand, config string) *cluster {
	t.Helper()
	c := &cluster{
		t: t, rng: rng, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
		objects: map[key]*unstructured.Unstructured{}, queue: map[cache.ObjectName]bool{}, observer: &observe.Observer{},
		afterWrite: func(string) {},
	}
	var err error
	c.config.Document, err = settings.Parse([]byte(config))
	require.NoError(t, err, config)
	c.config.ClusterDomain = "cluster.local"
	for _, manifest := range []string{
		`{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {namespace: gateways, name: public}, spec: ` +
			`{gatewayClassName: any, listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]}}`,
		`{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: nginx}, spec: {controller: k8s.io/ingress-nginx}}`,
		`{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: traefik}, spec: {controller: ` +
			`traefik.io/ingress-controller}}`,
	} {
		u := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(manifest), &u.Object))
		c.store(u)
	}
	c.start()
	return c
}

// start creates a Reconciler without state, as after a restart or a change of leaders.
func (c *cluster) start() {
	c.refresh()
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("patch", "inferenceservices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchAction)
		require.Equal(c.t, "status", patch.GetSubresource())
		return true, nil, c.patchStatus(cache.ObjectName{Namespace: patch.GetNamespace(), Name: patch.GetName()}, patch.GetPatch())
	})
	c.reconciler = controller.New(controller.Params{
		Observer: c.observer, Configuration: func() (settings.Config, string) { return c.config, "" }, Ownership: ownership.New(),
		Dependents: dependents.New(), Applier: c, Client: client, Recorder: c, Meter: metrics.New(prometheus.NewRegistry()),
		Enqueue: c.enqueue, Clock: c.clock,
	})
	c.reconciler.ReconcileAll()
}

// refresh updates the caches of the Reconciler to the current objects.
func (c *cluster) refresh() {
	caches, err := informers.Declare(nil).Read(kit.Snapshot{Objects: slices.Collect(maps.Values(c.objects))})
	require.NoError(c.t, err)
	*c.observer = *observe.New(caches)
}

func (c *cluster) enqueue(name cache.ObjectName) { c.queue[name] = true }

// store adds or replaces an object, and enqueues its service.
func (c *cluster) store(u *unstructured.Unstructured) {
	if u.GetUID() == "" {
		c.uids++
		u.SetUID(types.UID(fmt.Sprint(c.uids)))
		u.SetCreationTimestamp(metav1.NewTime(c.clock.Now()))
	}
	c.objects[keyOf(u)], c.known = u, nil
	c.changed(u)
}

func (c *cluster) remove(u *unstructured.Unstructured) {
	delete(c.objects, keyOf(u))
	c.known = nil
	c.changed(u)
}

func (c *cluster) changed(u *unstructured.Unstructured) {
	if u.GetKind() == "InferenceService" {
		c.enqueue(cache.ObjectName{Namespace: u.GetNamespace(), Name: u.GetName()})
	} else if name, ok := informers.OwnerName(u); ok {
		c.enqueue(name)
	}
}

// settle reconciles until the queue is empty, in random order.
func (c *cluster) settle() {
	for range 1000 {
		names := slices.SortedFunc(maps.Keys(c.queue), func(a, b cache.ObjectName) int { return strings.Compare(a.String(), b.String()) })
		if len(names) == 0 {
			return
		}
		name := names[c.rng.IntN(len(names))]
		delete(c.queue, name)
		c.refresh()
		err := c.reconciler.Reconcile(c.t.Context(), name)
		if err != nil {
			require.ErrorContains(c.t, err, "requeue after")
			require.NotContains(c.t, err.Error(), "\n", "the only error is a requeue")
		}
	}
	c.t.Fatal("the reconciler does not settle")
}

// pass lets time pass: data planes accept routes, the garbage collector works, and every service is reconciled.
func (c *cluster) pass(d time.Duration) {
	c.clock.SetTime(c.clock.Now().Add(d))
	for _, u := range slices.Collect(maps.Values(c.objects)) {
		if owner := metav1.GetControllerOf(u); owner != nil && !c.alive(u.GetNamespace(), owner) {
			c.remove(u)
			c.afterWrite("garbage collector deleted " + u.GetName())
			continue
		}
		c.accept(u)
		c.changed(u)
	}
	c.settle()
}

func (c *cluster) alive(namespace string, owner *metav1.OwnerReference) bool {
	u := c.objects[key{owner.Kind, types.NamespacedName{Namespace: namespace, Name: owner.Name}}]
	return u != nil && u.GetUID() == owner.UID
}

// accept writes the status of an object as a data plane that accepts it does.
func (c *cluster) accept(u *unstructured.Unstructured) {
	switch u.GetKind() {
	case "HTTPRoute":
		parents, _, _ := unstructured.NestedSlice(u.Object, "spec", "parentRefs")
		u = u.DeepCopy()
		condition := func(kind string) any {
			return map[string]any{"type": kind, "status": "True", "reason": kind, "observedGeneration": int64(0)}
		}
		require.NoError(c.t, unstructured.SetNestedSlice(u.Object, []any{map[string]any{
			"parentRef": parents[0], "controllerName": "any", "conditions": []any{condition("Accepted"), condition("ResolvedRefs")},
		}}, "status", "parents"))
	case "Ingress":
		u = u.DeepCopy()
		require.NoError(c.t,
			unstructured.SetNestedSlice(u.Object, []any{map[string]any{"ip": "192.0.2.1"}}, "status", "loadBalancer", "ingress"))
	}
	c.objects[keyOf(u)] = u
}

// Apply implements the applier of the Reconciler.
func (c *cluster) Apply(_ context.Context, _ schema.GroupVersionResource,
	wanted, _ *unstructured.Unstructured) (*unstructured.Unstructured, apply.Result, error) {
	known := c.objects[keyOf(wanted)]
	if err := apply.CheckOwner(wanted, known); err != nil {
		return known, apply.Unchanged, err
	}
	next, result := wanted.DeepCopy(), apply.Created
	if known != nil {
		annotations := map[string]string{}
		maps.Copy(annotations, known.GetAnnotations())
		maps.Copy(annotations, wanted.GetAnnotations())
		next.SetAnnotations(annotations)
		next.SetUID(known.GetUID())
		next.SetCreationTimestamp(known.GetCreationTimestamp())
		if status, found := known.Object["status"]; found {
			next.Object["status"] = status
		}
		result = apply.Updated
		if before, after := asJSON(c.t, known), asJSON(c.t, next); before == after {
			return known, apply.Unchanged, nil
		}
	}
	c.store(next)
	c.afterWrite(fmt.Sprintf("%s %s", result, next.GetName()))
	return next, result, nil
}

func asJSON(t *testing.T, u *unstructured.Unstructured) string {
	t.Helper()
	text, err := json.Marshal(u.Object)
	require.NoError(t, err)
	return string(text)
}

// Annotate implements the applier of the Reconciler.
func (c *cluster) Annotate(_ context.Context, _ schema.GroupVersionResource, live *unstructured.Unstructured, name, value string) error {
	u := c.objects[keyOf(live)].DeepCopy()
	annotations := u.GetAnnotations()
	if annotations[name] = value; value == "" {
		delete(annotations, name)
	}
	u.SetAnnotations(annotations)
	c.store(u)
	return nil
}

// Delete implements the applier of the Reconciler.
func (c *cluster) Delete(_ context.Context, _ schema.GroupVersionResource, live *unstructured.Unstructured, _ types.UID) error {
	c.remove(live)
	c.afterWrite("deleted " + live.GetName())
	return nil
}

// patchStatus applies a patch of the status of an InferenceService.
func (c *cluster) patchStatus(name cache.ObjectName, patch []byte) error {
	u := c.objects[key{"InferenceService", types.NamespacedName(name)}]
	if u == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "inferenceservices"}, name.Name)
	}
	var operations []struct {
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	require.NoError(c.t, json.Unmarshal(patch, &operations))
	u = u.DeepCopy()
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, o := range operations {
		switch value := o.Value.(type) {
		case map[string]any:
			if o.Path == "/status" {
				conditions, _ = value["conditions"].([]any)
				continue
			}
			kept := slices.DeleteFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == value["type"] })
			conditions = append(kept, value)
		case []any:
			conditions = value
		}
	}
	require.NoError(c.t, unstructured.SetNestedSlice(u.Object, conditions, "status", "conditions"))
	c.store(u)
	return nil
}

// Event implements the recorder of the Reconciler. It does nothing.
func (c *cluster) Event(*corev1.ObjectReference, string, string, string) {}

// claims returns the claims of the routes in the cluster.
func (c *cluster) claims() map[ownership.Claim]bool {
	all := map[ownership.Claim]bool{}
	for resource, kind := range render.Kinds {
		for k, u := range c.objects {
			if k.kind != kind {
				continue
			}
			if claim, ok := render.ParseClaim(resource, u); ok {
				all[claim] = true
			}
		}
	}
	return all
}
