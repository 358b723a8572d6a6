package bindings

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/observe"
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
			LoadBalancerID: lb, BackendSetName: "chat", ServiceRef: v1alpha1.ServiceReference{Name: name},
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

// document is a configuration that does not change.
type document struct {
	*policy.Document

	problem string
}

func (d document) CurrentDocument() (*policy.Document, string) { return d.Document, d.problem }

func configured(t *testing.T, text string) document {
	t.Helper()
	d, err := policy.Parse([]byte(text))
	require.NoError(t, err)
	return document{Document: d}
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
	one := observe.ServiceEndpoints{Endpoints: []plan.Endpoint{{Address: netip.MustParseAddrPort("10.0.0.1:80"), State: plan.Ready}}}
	tests := []struct {
		name      string
		binding   *v1alpha1.BackendSetBinding
		rivals    []*v1alpha1.BackendSetBinding
		siblings  int
		endpoints observe.ServiceEndpoints
		err       error
		config    string
		problem   string
		reason    string
		message   string
		writes    bool
	}{
		{name: "a binding", binding: bindingOf("a", 1), endpoints: one, writes: true},
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
			name: "a younger rival", binding: bindingOf("a", 2), rivals: []*v1alpha1.BackendSetBinding{bindingOf("b", 1)}, endpoints: one,
			writes: true,
		},
		{
			name: "a rival that is not allowed", binding: bindingOf("a", 1),
			rivals: []*v1alpha1.BackendSetBinding{bindingOf("b", 2, in("other"), held(2))}, endpoints: one, writes: true,
		},
		{
			name: "no such port", binding: bindingOf("a", 1, held(1)), err: errors.New("Service a has no port"), reason: "ServiceInvalid",
			message: "keeps its backends",
		},
		{
			name: "no Service, ever", binding: bindingOf("a", 1), endpoints: observe.ServiceEndpoints{Missing: true},
			reason: "ServiceInvalid", message: "keeps its backends",
		},
		{
			name: "no Service any longer", binding: bindingOf("a", 1, held(1)), endpoints: observe.ServiceEndpoints{Missing: true},
			reason: "ServiceInvalid", message: "leave the backend set", writes: true,
		},
		{
			name: "addresses that are refused", binding: bindingOf("a", 1),
			endpoints: observe.ServiceEndpoints{Endpoints: one.Endpoints, Refused: "too many"}, reason: "AddressesRefused",
			message: "too many", writes: true,
		},
		{name: "a binding that is deleted", binding: bindingOf("a", 1, deleting), err: errors.New("no port"), writes: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := newMockObserver(t)
			o.EXPECT().BindingsOfSet(tt.binding).Return(append(tt.rivals, tt.binding)).Maybe()
			siblings := []*v1alpha1.BackendSetBinding{tt.binding}
			for n := range tt.siblings {
				siblings = append(siblings, bindingOf(fmt.Sprint("s", n), 5))
			}
			o.EXPECT().BindingsOfNamespace(mock.Anything).Return(siblings).Maybe()
			o.EXPECT().BindingEndpoints(tt.binding, mock.Anything).Return(tt.endpoints, tt.err).Maybe()
			d := document{problem: tt.problem}
			if tt.config == "" {
				d = configured(t, text)
			}
			v := NewEvaluator(o, d, nil).Evaluate(tt.binding)
			assert.Equal(t, tt.reason, v.reason)
			assert.Contains(t, v.message, tt.message)
			assert.Equal(t, tt.writes, v.writes)
			assert.Equal(t, tt.writes, v.BlockingProblem() == "")
			if tt.writes && tt.binding.DeletionTimestamp == nil {
				assert.Equal(t, tt.endpoints.Endpoints, v.BuildWanted(tt.binding).Endpoints)
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
	document, err := policy.Parse([]byte(permits))
	require.NoError(t, err)
	b := &v1alpha1.BackendSetBinding{Spec: v1alpha1.BackendSetBindingSpec{LoadBalancerID: lb, BackendSetName: "chat"}}
	o := newMockObserver(t)
	o.EXPECT().BindingsOfNamespace(mock.Anything).Return(nil).Maybe()
	v := NewEvaluator(o, fixedDocument{document}, func(id, set string) bool { return id == lb && set == "chat" }).Evaluate(b)
	assert.Contains(t, v.BlockingProblem(), "belongs to Gateways")
}

// fixedDocument is a configuration that does not change.
type fixedDocument struct{ *policy.Document }

func (f fixedDocument) CurrentDocument() (*policy.Document, string) { return f.Document, "" }
