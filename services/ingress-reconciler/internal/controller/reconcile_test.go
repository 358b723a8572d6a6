package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"fairlead.dev/pkg/apply"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/dependents"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/metrics"
	"fairlead.dev/services/ingress-reconciler/internal/observe"
	"fairlead.dev/services/ingress-reconciler/internal/render"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

var chat = cache.ObjectName{Namespace: "models", Name: "chat"}

const world = `
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: chat, namespace: models, uid: chat, resourceVersion: "7", creationTimestamp: "2026-01-01T00:00:00Z"}
spec: {engine: {}}
status: {conditions: [{type: EngineReady, status: "True"}]}
---
apiVersion: v1
kind: Service
metadata:
  name: chat-engine
  namespace: models
  labels: {ome.io/inferenceservice: chat, component: engine}
  ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, uid: chat, controller: true}]
spec: {clusterIP: 10.0.0.1, ports: [{name: http1, port: 8080}]}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: any, annotations: {ingressclass.kubernetes.io/is-default-class: "true"}}
spec: {controller: example.com/any}
`

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// rig is a Reconciler with a constant cluster state.
type rig struct {
	*Reconciler

	applier  *mockApplier
	statuses map[cache.ObjectName][]func(patch []byte) error // writes of conditions that are expected
	recorder *mockRecorder
	metrics  *prometheus.Registry
	enqueued []cache.ObjectName
}

func newRig(t *testing.T, manifests, config string) *rig {
	t.Helper()
	var objects []*unstructured.Unstructured
	for text := range strings.SplitSeq(manifests, "\n---\n") {
		u := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(text), &u.Object))
		objects = append(objects, u)
	}
	caches, err := informers.Declare(nil).Read(kit.Snapshot{Objects: objects})
	require.NoError(t, err)
	c, problem := settings.Config{}, "nothing is configured"
	if config != "" {
		c.Document, err = settings.Parse([]byte(config))
		require.NoError(t, err)
		problem = ""
	}
	r := &rig{
		applier: newMockApplier(t), statuses: map[cache.ObjectName][]func([]byte) error{}, recorder: newMockRecorder(t),
		metrics: prometheus.NewRegistry(),
	}
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("patch", "inferenceservices", r.patchStatus(t))
	t.Cleanup(func() {
		for name, missing := range r.statuses {
			assert.Empty(t, missing, "no condition of %s was written", name)
		}
	})
	r.Reconciler = New(Params{
		Observer: observe.New(caches), Ownership: ownership.New(), Dependents: dependents.New(), Applier: r.applier,
		Configuration: func() (settings.Config, string) { return c, problem },
		Client:        client, Recorder: r.recorder, Meter: metrics.New(r.metrics),
		Enqueue: func(n cache.ObjectName) { r.enqueued = append(r.enqueued, n) },
		Clock:   clocktesting.NewFakePassiveClock(start),
	})
	r.pacer.byName[chat] = start // conditions are written at once
	return r
}

// applies expects Apply for objects of a kind, with the given result.
func (r *rig) applies(resource schema.GroupVersionResource, result apply.Result, err error) {
	r.applier.EXPECT().Apply(mock.Anything, resource, mock.Anything, mock.Anything).RunAndReturn(stored(result, err))
}

// applyFunc is the signature of applier.Apply.
type applyFunc = func(ctx context.Context, resource schema.GroupVersionResource, wanted, live *unstructured.Unstructured,
) (*unstructured.Unstructured, apply.Result, error)

// stored returns the result of Apply: the object or an error.
func stored(result apply.Result, err error) applyFunc {
	return func(_ context.Context, _ schema.GroupVersionResource, wanted, _ *unstructured.Unstructured,
	) (*unstructured.Unstructured, apply.Result, error) {
		return wanted, result, err
	}
}

// expectStatus expects one write of the condition, and returns a pointer to "status reason".
func (r *rig) expectStatus(err error) *string {
	var written string
	r.statuses[chat] = append(r.statuses[chat], func(patch []byte) error {
		var operations []struct {
			Path  string
			Value any
		}
		if err := json.Unmarshal(patch, &operations); err != nil {
			return err
		}
		c, _ := operations[1].Value.(map[string]any)
		written = c["status"].(string) + " " + c["reason"].(string)
		return err
	})
	return &written
}

// reasons returns the numbers of services, by the reason of their condition.
func (r *rig) reasons(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := r.metrics.Gather()
	require.NoError(t, err)
	numbers := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "fairlead_ingress_services" {
			for _, m := range f.GetMetric() {
				numbers[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	return numbers
}

// patchStatus answers writes of conditions.
func (r *rig) patchStatus(t *testing.T) clienttesting.ReactionFunc {
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchAction)
		name := cache.ObjectName{Namespace: patch.GetNamespace(), Name: patch.GetName()}
		assert.Equal(t, "status", patch.GetSubresource())
		if !assert.NotEmpty(t, r.statuses[name], "a condition of %s is written", name) {
			return true, nil, errors.New("not expected")
		}
		write := r.statuses[name][0]
		r.statuses[name] = r.statuses[name][1:]
		return true, nil, write(patch.GetPatch())
	}
}

func TestObjectCannotBeWritten(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "ingresses"}, "x", errors.New("newer"))
	tests := []struct {
		name string
		err  error
		says string
	}{
		{name: "written", says: "Unknown LoadBalancerPending"},
		{name: "conflict", err: conflict, says: "False NotWritten"},
		{name: "forbidden", err: apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no")), says: "False NotWritten"},
		{name: "too many requests", err: apierrors.NewTooManyRequests("later", 1), says: "False NotWritten"},
		{name: "a foreign object", err: apply.ErrForeign, says: "False NameConflict"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, world, "ingressDomain: example.com\nadditionalIngressDomains: [example.org]\n")
			r.applier.EXPECT().Apply(mock.Anything, render.Ingresses, mock.MatchedBy(ofHost("chat.models.example.com")),
				mock.Anything).RunAndReturn(stored(apply.Unchanged, tt.err)).Once()
			r.applier.EXPECT().Apply(mock.Anything, render.Ingresses, mock.MatchedBy(ofHost("chat.models.example.org")),
				mock.Anything).RunAndReturn(stored(apply.Created, nil)).Once()
			if tt.err != nil {
				r.recorder.EXPECT().Event(mock.Anything, "Warning", strings.TrimPrefix(tt.says, "False "), mock.Anything).Once()
			}
			written := r.expectStatus(nil)
			err := r.Reconcile(t.Context(), chat)
			assert.Equal(t, tt.says, *written, "the other object and the condition are still written")
			switch {
			case tt.err == nil:
				require.EqualError(t, err, "requeue after 2m0s: the ingress controller has not published an address yet")
			case errors.Is(tt.err, apply.ErrForeign):
				require.ErrorContains(t, err, "requeue after 20s", "the deletion of the foreign object causes no event")
				require.NotErrorIs(t, err, apply.ErrForeign)
			default:
				assert.ErrorIs(t, err, tt.err)
			}
		})
	}
}

func ofHost(host string) func(*unstructured.Unstructured) bool {
	return func(u *unstructured.Unstructured) bool {
		rules, _, _ := unstructured.NestedSlice(u.Object, "spec", "rules")
		return rules[0].(map[string]any)["host"] == host
	}
}

func TestNeverWritten(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, manifests, config string }{
		{
			name:      "a VirtualDeployment",
			manifests: strings.Replace(world, "spec: {engine: {}}", "spec: {engine: {}, deploymentMode: VirtualDeployment}", 1),
			config:    "ingressDomain: example.com",
		},
		{
			name:      "a service that is being deleted",
			manifests: strings.Replace(world, "uid: chat, resource", "uid: chat, deletionTimestamp: \"2026-01-02T00:00:00Z\", resource", 1),
			config:    "ingressDomain: example.com",
		},
		{name: "a deleted service", manifests: world[strings.Index(world, "---\n")+4:], config: "ingressDomain: example.com"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.NoError(t, newRig(t, tt.manifests, tt.config).Reconcile(t.Context(), chat))
		})
	}
}

func TestUnreadableService(t *testing.T) {
	t.Parallel()
	r := newRig(t, strings.Replace(world, "spec: {engine: {}}", "spec: {engine: 7}", 1), "ingressDomain: example.com")
	r.recorder.EXPECT().Event(mock.Anything, "Warning", "InvalidConfiguration",
		"read InferenceService: spec.engine is 7, want an object").Once()
	assert.ErrorContains(t, r.Reconcile(t.Context(), chat), "spec.engine is 7")
}

func TestProblemIsReportedOnce(t *testing.T) {
	t.Parallel()
	before := `, {type: fairlead.dev/Exposed, status: "False", severity: Info, lastTransitionTime: "2026-01-01T00:00:00Z", reason: ` +
		`NoDomain, message: %s}]`
	stored := func(message string) string {
		return strings.Replace(world, `status: "True"}]`, `status: "True"}`+fmt.Sprintf(before, message), 1)
	}
	t.Run("and by another leader not at all", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, stored(`"no domain is configured: set ingressDomain"`), "enabled: true")
		require.NoError(t, r.Reconcile(t.Context(), chat), "nothing is written")
	})
	t.Run("nor in other words", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, stored("older"), "enabled: true")
		r.expectStatus(nil)
		require.NoError(t, r.Reconcile(t.Context(), chat))
	})
	t.Run("but again for another reason", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, stored("older"), "enabled: false")
		r.expectStatus(nil)
		r.recorder.EXPECT().Event(mock.Anything, "Warning", "Disabled", mock.Anything).Once()
		require.NoError(t, r.Reconcile(t.Context(), chat))
	})
}

func TestDeletedServiceIsForgotten(t *testing.T) {
	t.Parallel()
	r := newRig(t, world, "enabled: false")
	r.expectStatus(nil)
	r.recorder.EXPECT().Event(mock.Anything, "Warning", "Disabled", mock.Anything).Once()
	require.NoError(t, r.Reconcile(t.Context(), chat))
	require.NotEmpty(t, r.Dependents.DependentsOf(dependents.Object{Kind: dependents.IngressClass}))
	assert.Equal(t, map[string]float64{"Disabled": 1}, r.reasons(t))
	r.Clear()
	assert.Equal(t, map[string]float64{"Disabled": 0}, r.reasons(t))
	assert.Empty(t, r.Dependents.DependentsOf(dependents.Object{Kind: dependents.IngressClass}))
	assert.Equal(t, ownership.New(), r.Ownership)
}

func TestANewServiceIsNoWarning(t *testing.T) {
	t.Parallel()
	r := newRig(t, strings.Replace(world, `conditions: [{type: EngineReady, status: "True"}]`, "conditions: []", 1),
		"ingressDomain: example.com")
	written := r.expectStatus(nil)
	r.recorder.EXPECT().Event(mock.Anything, "Normal", "ComponentNotReady", mock.Anything).Once()
	require.NoError(t, r.Reconcile(t.Context(), chat))
	assert.Equal(t, "False ComponentNotReady", *written)
}

func TestNothingIsConfigured(t *testing.T) {
	t.Parallel()
	r := newRig(t, world, "")
	r.recorder.EXPECT().Event(mock.Anything, "Warning", "InvalidConfiguration", mock.Anything).Once()
	written := r.expectStatus(nil)
	require.NoError(t, r.Reconcile(t.Context(), chat))
	assert.Equal(t, "False InvalidConfiguration", *written)
}

func TestTheConditionThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	group := schema.GroupKind{Kind: "InferenceService"}
	tests := []struct {
		name string
		err  error
		want string // part of the error; empty: no additional error
	}{
		{name: "gone", err: apierrors.NewNotFound(schema.GroupResource{}, "chat")},
		{name: "newer", err: apierrors.NewConflict(schema.GroupResource{}, "chat", errors.New("newer")), want: "newer"},
		{name: "other conditions", err: apierrors.NewInvalid(group, "chat", nil), want: "requeue after 1s"},
		{name: "forbidden", err: apierrors.NewForbidden(schema.GroupResource{}, "chat", errors.New("no")), want: "write condition"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, world, "ingressDomain: example.com")
			r.applies(render.Ingresses, apply.Created, nil)
			r.expectStatus(tt.err)
			err := r.Reconcile(t.Context(), chat)
			require.ErrorContains(t, err, "requeue after 2m0s", "the Ingress has no address yet")
			if tt.want == "" {
				assert.NotContains(t, err.Error(), "\n", "the requeue is the only error")
			}
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

func TestReadySince(t *testing.T) {
	t.Parallel()
	at := func(second int) string { return fmt.Sprintf("2026-05-04T12:00:%02dZ", second) }
	tests := []struct {
		name                    string
		engine, router, exposed string
		want                    int
	}{
		{name: "the service has no conditions", want: 1},
		{name: "the engine", engine: at(5), want: 5},
		{name: "the last component", engine: at(5), router: at(7), want: 7},
		{name: "it was exposed before", engine: at(5), router: at(7), exposed: at(9), want: 9},
		{name: "it was not ready before", engine: at(9), exposed: at(7), want: 9},
		{name: "no time", engine: "soon", want: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &isvc.Service{Created: time.Date(2026, 5, 4, 12, 0, 1, 0, time.UTC), Conditions: []isvc.Condition{
				{Type: "EngineReady", LastTransitionTime: tt.engine}, {Type: "RouterReady", LastTransitionTime: tt.router},
				{Type: "DecoderReady", LastTransitionTime: at(50)}, {Type: "fairlead.dev/Exposed", LastTransitionTime: tt.exposed},
			}}
			assert.Equal(t, tt.want, readySince(s, &s.Conditions[3]).Second())
		})
	}
}

// A new leader does not know that a router was just removed. It must not send requests back to the router, whose Service OME is about
// to delete. In OME 1.3 the router may be the runtime's, so it is checked again.
func TestNewLeaderKeepsRequestsAwayFromARemovedRouter(t *testing.T) {
	t.Parallel()
	services := world + "---" + strings.ReplaceAll(strings.SplitN(world, "---", 3)[1], "engine", "router")
	const route = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: chat-fairlead-61a3afd9
  namespace: models
  labels: {fairlead.dev/inferenceservice: chat, fairlead.dev/managed-by: ingress-reconciler, fairlead.dev/slot: entry,
    fairlead.dev/component: COMPONENT}
  annotations: {fairlead.dev/claim: chat.models.example.com/}
  ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, uid: chat, controller: true}]
`
	for name, tt := range map[string]struct{ manifests, backend, requeue string }{
		"the route goes to the engine": {
			services + "---" + strings.Replace(route, "COMPONENT", "engine", 1), "chat-engine", "requeue after 2m0s",
		},
		"the route goes to the engine, in OME 1.3": {
			strings.Replace(services, "status: {", `status: {components: {engine: {scaleTargetRef: {kind: Deployment}}}, `, 1) + "---" +
				strings.Replace(route, "COMPONENT", "engine", 1),
			"chat-engine", "requeue after 2m0s",
		},
		"the route goes to the runtime's router": {
			services + "---" + strings.Replace(route, "COMPONENT", "router", 1), "chat-router", "requeue after 2m0s",
		},
		"there is no route to the runtime's router": {services, "chat-router", "requeue after 2m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, strings.Replace(tt.manifests, `status: "True"}]`, `status: "True"}, {type: RouterReady, status: "True"}]`, 1),
				"ingressDomain: example.com")
			var backends []string
			r.applier.EXPECT().Apply(mock.Anything, render.Ingresses, mock.Anything, mock.Anything).RunAndReturn(
				func(_ context.Context, _ schema.GroupVersionResource, wanted, _ *unstructured.Unstructured,
				) (*unstructured.Unstructured, apply.Result, error) {
					var ingress networkingv1.Ingress
					require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(wanted.Object, &ingress))
					backends = append(backends, ingress.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name)
					return wanted, apply.Updated, nil
				})
			r.expectStatus(nil)
			require.ErrorContains(t, r.Reconcile(t.Context(), chat), tt.requeue)
			assert.Equal(t, []string{tt.backend}, backends)
		})
	}
}

func TestReconcileAllTakesAllClaimsBeforeTheFirstWrite(t *testing.T) {
	t.Parallel()
	younger := strings.NewReplacer("name: chat", "name: other", "uid: chat", "uid: other", "2026-01-01", "2026-01-02",
		"inferenceservice: chat", "inferenceservice: other").Replace(world)
	const route = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: chat-fairlead-0
  namespace: models
  labels: {fairlead.dev/managed-by: ingress-reconciler, fairlead.dev/slot: entry, fairlead.dev/component: engine}
  annotations: {fairlead.dev/claim: one.example.com/}
  ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, uid: chat, controller: true}]
`
	for name, older := range map[string]string{
		"which are known":          world,
		"of an unreadable service": strings.Replace(world, "{engine: {}}", "{engine: 7}", 1) + "---" + route,
		"of a service with an invalid annotation": strings.Replace(world, "uid: chat,",
			`annotations: {ome.io/ingress-domain-template: "{{"}, uid: chat,`, 1) + "---" + route,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, younger+"---\n"+older, "ingressDomain: example.com\ndomainTemplate: one.example.com\n")
			r.ReconcileAll()
			other := cache.ObjectName{Namespace: "models", Name: "other"}
			assert.ElementsMatch(t, []cache.ObjectName{chat, other}, r.enqueued)
			r.statuses[other] = append(r.statuses[other], func([]byte) error { return nil })
			r.recorder.EXPECT().Event(mock.Anything, "Warning", "HostConflict", mock.Anything).Once()
			require.NoError(t, r.Reconcile(t.Context(), other), "Reconcile applies no objects")
		})
	}
}
