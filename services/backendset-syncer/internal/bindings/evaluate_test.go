package bindings

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/pkg/golden"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/plan"
	"fairlead.dev/services/backendset-syncer/internal/policy"
)

const lb = "ocid1.loadbalancer.oc1.iad.a"

var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// bindingOf returns a binding of set chat that was created some minutes ago.
func bindingOf(name string, minutes int, change ...func(b *v1alpha1.BackendSetBinding)) *v1alpha1.BackendSetBinding {
	b := &v1alpha1.BackendSetBinding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "models", Name: name, UID: types.UID(name), Generation: 3,
			CreationTimestamp: metav1.NewTime(now.Add(-time.Duration(minutes) * time.Minute)),
		},
		Spec: v1alpha1.BackendSetBindingSpec{
			LoadBalancerID: lb, BackendSetName: "chat", ServiceRef: v1alpha1.ServiceReference{Name: name, Port: intstr.FromInt32(80)},
		},
	}
	for _, c := range change {
		c(b)
	}
	return b
}

func held(minutes int) func(b *v1alpha1.BackendSetBinding) {
	return func(b *v1alpha1.BackendSetBinding) {
		at := metav1.NewTime(now.Add(-time.Duration(minutes) * time.Minute))
		b.Status.HeldSince = &at
	}
}

func in(namespace string) func(b *v1alpha1.BackendSetBinding) {
	return func(b *v1alpha1.BackendSetBinding) { b.Namespace = namespace }
}

func deleting(b *v1alpha1.BackendSetBinding) { b.DeletionTimestamp = &metav1.Time{Time: now} }

// configured returns a configuration that does not change.
func configured(t *testing.T, text string) policy.Source {
	t.Helper()
	d, err := policy.Parse([]byte(text))
	require.NoError(t, err)
	return func() (*policy.Document, string) { return d, "" }
}

const (
	service = "- {apiVersion: v1, kind: Service, metadata: {namespace: models, name: a}, spec: {ports: [{port: 80}]}}\n"
	// endpoint is the slice of the Service.
	endpoint = "- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: models, name: a, labels: " +
		"{kubernetes.io/service-name: a}}, addressType: IPv4, ports: [{port: 80}], endpoints: [{addresses: [10.0.0.1]}]}\n"
)

// cachesOf returns caches of bindings and of objects as YAML.
func cachesOf(t *testing.T, bindings []*v1alpha1.BackendSetBinding, objects string) informers.Caches {
	t.Helper()
	var world kit.Snapshot
	for _, b := range bindings {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(b)
		require.NoError(t, err)
		object["apiVersion"], object["kind"] = v1alpha1.SchemeGroupVersion.String(), "BackendSetBinding"
		world.Objects = append(world.Objects, &unstructured.Unstructured{Object: object})
	}
	for _, object := range golden.Decode[[]map[string]any](t, []byte(objects)) {
		world.Objects = append(world.Objects, &unstructured.Unstructured{Object: object})
	}
	caches, err := informers.Options{Gateways: true}.Declare().Read(world)
	require.NoError(t, err)
	return caches
}

func TestOwnersOfBackendSets(t *testing.T) {
	t.Parallel()
	key := actor.Key{LoadBalancer: lb, Set: "chat"}
	tests := []struct {
		name     string
		bindings []*v1alpha1.BackendSetBinding
		want     string
	}{
		{name: "the oldest", bindings: []*v1alpha1.BackendSetBinding{bindingOf("b", 1), bindingOf("a", 2)}, want: "a"},
		{name: "by name", bindings: []*v1alpha1.BackendSetBinding{bindingOf("b", 1), bindingOf("a", 1)}, want: "a"},
		{name: "by namespace", bindings: []*v1alpha1.BackendSetBinding{bindingOf("a", 1), bindingOf("b", 1, in("earlier"))}, want: "b"},
		{
			name: "the one that holds the set", bindings: []*v1alpha1.BackendSetBinding{bindingOf("b", 1, held(1)), bindingOf("a", 9)},
			want: "b",
		},
		{
			name:     "the one that held it first",
			bindings: []*v1alpha1.BackendSetBinding{bindingOf("a", 9, held(1)), bindingOf("b", 1, held(2))}, want: "b",
		},
	}
	for _, tt := range tests {
		for _, b := range tt.bindings {
			h := newSetOwners()
			assert.Equal(t, tt.want, h.chooseOwner(key, b, tt.bindings).Name, tt.name)
		}
	}

	h := newSetOwners()
	young, old := bindingOf("young", 1), bindingOf("old", 9)
	assert.Equal(t, young, h.chooseOwner(key, young, nil))
	assert.Equal(t, young, h.chooseOwner(key, old, []*v1alpha1.BackendSetBinding{young}),
		"a set that was granted stays, although the status is not written yet")
	assert.False(t, h.wasOwned(key), "nobody has claimed it")
	h.clearGrants()
	assert.Equal(t, old, h.chooseOwner(key, young, []*v1alpha1.BackendSetBinding{old}))
}

func TestBackendsOfAnEarlierBindingAreNotThoseOfOthers(t *testing.T) {
	t.Parallel()
	key, h := actor.Key{LoadBalancer: lb, Set: "chat"}, newSetOwners()
	h.chooseOwner(key, bindingOf("a", 1), []*v1alpha1.BackendSetBinding{bindingOf("b", 1, held(1))})
	assert.True(t, h.wasOwned(key))
	assert.False(t, h.wasOwned(actor.Key{LoadBalancer: lb, Set: "embed"}))
	h.clearGrants()
	assert.False(t, h.wasOwned(key))
}

func TestLimitOfBindings(t *testing.T) {
	t.Parallel()
	a, b, c := bindingOf("a", 3), bindingOf("b", 2, held(1)), bindingOf("c", 1)
	all := []*v1alpha1.BackendSetBinding{a, b, c}
	for limit, want := range map[int]string{
		3: "[false false false]", 2: "[false false true]", 1: "[true false true]", 0: "[true true true]",
	} {
		assert.Equal(t, want, fmt.Sprint([]bool{exceedsLimit(limit, a, all), exceedsLimit(limit, b, all), exceedsLimit(limit, c, all)}),
			limit)
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	const text = "loadBalancers: [{id: " + lb + ", namespaces: [models]}]\nnamespaces: {models: {bindings: 2, backendsPerBinding: 9}}"
	one := []plan.Endpoint{{Address: netip.MustParseAddrPort("10.0.0.1:80"), State: plan.Ready}}
	tests := []struct {
		name      string
		binding   *v1alpha1.BackendSetBinding
		rivals    []*v1alpha1.BackendSetBinding
		siblings  int
		objects   string
		endpoints []plan.Endpoint
		config    string
		problem   string
		reason    string
		message   string
		writes    bool
	}{
		{name: "a binding", binding: bindingOf("a", 1), objects: service + endpoint, endpoints: one, writes: true},
		{
			name: "of another namespace", binding: bindingOf("a", 1, in("other")), reason: "NotAllowed",
			message: "does not permit namespace other",
		},
		{
			name: "without a configuration", binding: bindingOf("a", 1), config: "-", problem: "ConfigMap a/b does not exist",
			reason: "NotAllowed", message: "(ConfigMap a/b does not exist)",
		},
		{name: "too many", binding: bindingOf("a", 1), siblings: 3, reason: "NotAllowed", message: "more than 2 bindings"},
		{
			name: "a rival", binding: bindingOf("a", 1), rivals: []*v1alpha1.BackendSetBinding{bindingOf("b", 2)}, reason: "Conflict",
			message: "binding b owns",
		},
		{
			name: "a younger rival", binding: bindingOf("a", 2), rivals: []*v1alpha1.BackendSetBinding{bindingOf("b", 1)},
			objects: service + endpoint, endpoints: one, writes: true,
		},
		{
			name: "a rival that is not allowed", binding: bindingOf("a", 1),
			rivals:  []*v1alpha1.BackendSetBinding{bindingOf("b", 2, in("other"), held(2))},
			objects: service + endpoint, endpoints: one, writes: true,
		},
		{
			name: "no such port", binding: bindingOf("a", 1, held(1)), objects: strings.ReplaceAll(service, "80", "81"),
			reason: "ServiceInvalid", message: "Service a has no port 80; it has 81; the backend set keeps its backends",
		},
		{
			name: "no Service, ever", binding: bindingOf("a", 1), reason: "ServiceInvalid", message: "keeps its backends",
		},
		{
			name: "no Service any longer", binding: bindingOf("a", 1, held(1)), reason: "ServiceInvalid",
			message: "leave the backend set", writes: true,
		},
		{
			name: "addresses that are refused", binding: bindingOf("a", 1),
			objects:   service + strings.Replace(endpoint, "[10.0.0.1]", "[10.0.0.1]}, {addresses: [127.0.0.1]", 1),
			endpoints: one, reason: "AddressesRefused", message: "127.0.0.1", writes: true,
		},
		{
			name: "a binding that is deleted", binding: bindingOf("a", 1, deleting), objects: strings.ReplaceAll(service, "80", "81"),
			writes: true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			all := append(slices.Clone(tt.rivals), tt.binding)
			for n := range tt.siblings {
				all = append(all, bindingOf(fmt.Sprint("s", n), 5))
			}
			source := func() (*policy.Document, string) { return nil, tt.problem }
			if tt.config == "" {
				source = configured(t, text)
			}
			v := NewEvaluator(cachesOf(t, all, tt.objects), source, "fairlead").Evaluate(tt.binding)
			assert.Equal(t, tt.reason, v.reason)
			assert.Contains(t, v.message, tt.message)
			assert.Equal(t, tt.writes, v.writes)
			assert.Equal(t, tt.writes, v.BlockingProblem() == "")
			if tt.writes && tt.binding.DeletionTimestamp == nil {
				assert.Equal(t, tt.endpoints, v.BuildWanted(tt.binding).Endpoints)
				assert.Equal(t, 9, v.BuildWanted(tt.binding).Maximum)
			}
		})
	}
}

func TestWanted(t *testing.T) {
	t.Parallel()
	b := bindingOf("a", 1, held(1))
	v := &Decision{permission: policy.Permission{Limits: plan.Limits{PerSet: 5}}}
	assert.Equal(t,
		&actor.Wanted{
			Services: []string{"models/a"}, Claimed: b.Status.HeldSince.Time, Weight: 1, Drain: plan.Drain{Maximum: time.Hour},
			Limits: plan.Limits{PerSet: 5},
		},
		v.BuildWanted(b), "an old object without defaults")
	b.Spec.Weight = 7
	b.Spec.Drain = v1alpha1.Drain{Minimum: &metav1.Duration{Duration: time.Second}, Maximum: &metav1.Duration{Duration: time.Minute}}
	b.Spec.HealthChecker = &v1alpha1.HealthChecker{
		Protocol: "HTTP", URLPath: "/h", Port: 1, ReturnCode: 204, Retries: 2, TimeoutMilliseconds: 1500, IntervalMilliseconds: 2500,
	}
	deleting(b)
	assert.Equal(t, &actor.Wanted{
		Services: []string{"models/a"}, Claimed: b.Status.HeldSince.Time, Weight: 7,
		Drain: plan.Drain{Minimum: time.Second, Maximum: time.Minute}, Limits: plan.Limits{PerSet: 5}, Emptying: true,
		Health: &plan.HealthChecker{
			Protocol: "HTTP", URLPath: "/h", Port: 1, ReturnCode: 204, Retries: 2, Timeout: 1500 * time.Millisecond,
			Interval: 2500 * time.Millisecond,
		},
	}, v.BuildWanted(b))
}

func TestJudgeRefusesSetsOfGateways(t *testing.T) {
	t.Parallel()
	b := &v1alpha1.BackendSetBinding{Spec: v1alpha1.BackendSetBindingSpec{LoadBalancerID: lb, BackendSetName: "chat"}}
	record := "- {apiVersion: v1, kind: ConfigMap, metadata: {namespace: fairlead, name: " + lbrecord.ConfigMapName(lb) + ", labels: {" +
		lbrecord.Label + ": record}}, data: {record: '{\"loadBalancer\": \"" + lb + "\", \"objects\": [{\"kind\": \"backendSets\", " +
		"\"name\": \"chat\", \"key\": \"set\"}]}'}}"
	v := NewEvaluator(cachesOf(t, nil, record), configured(t, permits), "fairlead").Evaluate(b)
	assert.Contains(t, v.BlockingProblem(), "belongs to Gateways")
}
