package gatewayplan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/lblayout"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/policy"
)

const balancerID = "ocid1.loadbalancer.oc1.iad.a"

// rig is a cluster in memory, whose objects are planned.
type rig struct {
	t       *testing.T
	config  string
	options Options
	live    *lblayout.Live
	record  *lbrecord.Record
	objects []*unstructured.Unstructured
	now     time.Time
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{
		t: t, config: "podRanges: [10.0.0.0/16]\nloadBalancers: [{id: " + balancerID + ", gateways: {namespaces: [infra]}}]",
		live: emptyLive(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	r.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: infra}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: models, " +
		"labels: {team: llm}}\n---\n" +
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: others}\n---\n" +
		"apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: oci}\nspec: {controllerName: " +
		"fairlead.dev/oci-load-balancer}")
	return r
}

func emptyLive() *lblayout.Live {
	return &lblayout.Live{
		Listeners: map[string]lblayout.Listener{}, Policies: map[string]lblayout.Policy{}, RuleSets: map[string]lblayout.RuleSet{},
		Hostnames: map[string]lblayout.Hostname{}, Certificates: map[string]bool{}, Sets: map[string]int{}, Uses: map[lblayout.Ref]bool{},
	}
}

// apply adds objects, each a second younger than the one before, or replaces them.
func (r *rig) apply(manifests string) {
	r.t.Helper()
	for text := range strings.SplitSeq(manifests, "\n---\n") {
		var object map[string]any
		require.NoError(r.t, yaml.Unmarshal([]byte(text), &object), text)
		u := &unstructured.Unstructured{Object: object}
		r.now = r.now.Add(time.Second)
		u.SetCreationTimestamp(metav1.NewTime(r.now))
		u.SetUID(types.UID(fmt.Sprintf("uid-%d", len(r.objects))))
		u.SetGeneration(1)
		replaced := false
		for i, o := range r.objects {
			if o.GetKind() == u.GetKind() && o.GetNamespace() == u.GetNamespace() && o.GetName() == u.GetName() {
				u.SetCreationTimestamp(o.GetCreationTimestamp())
				r.objects[i], replaced = u, true
			}
		}
		if !replaced {
			r.objects = append(r.objects, u)
		}
	}
}

// gateway adds a Gateway of namespace infra. more are further fields of its spec.
func (r *rig) gateway(name, parameters, more string, listeners ...string) {
	r.t.Helper()
	r.apply(fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: %[1]s, namespace: infra, labels: {fairlead.dev/gateway: parameters}}
data: {loadBalancerId: %[2]s, %[3]s}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: %[1]s, namespace: infra}
spec:
  gatewayClassName: oci
  infrastructure: {parametersRef: {group: "", kind: ConfigMap, name: %[1]s}}
  listeners: [%[4]s]
  %[5]s
`, name, balancerID, parameters, strings.Join(listeners, ", "), more))
}

// route adds an HTTPRoute of Gateway web, unless its spec has parentRefs.
func (r *rig) route(ns, name, spec string) {
	r.t.Helper()
	if !strings.Contains(spec, "parentRefs") {
		spec = "parentRefs: [{name: web, namespace: infra}], " + spec
	}
	r.apply(fmt.Sprintf("apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: %s, namespace: %s}\nspec: {%s}", name,
		ns, spec))
}

// service adds a Service with port 80 whose pods have these numbers.
func (r *rig) service(ns, name string, pods ...int) {
	r.t.Helper()
	var endpoints []string
	for _, n := range pods {
		endpoints = append(endpoints,
			fmt.Sprintf("{addresses: [10.0.%d.%d], conditions: {ready: true, serving: true, terminating: false}}", n/250, n%250+1))
	}
	r.apply(fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %[1]s, namespace: %[2]s}\nspec: {ports: [{name: http, port: 80, "+
		"targetPort: 8000}]}\n---\n"+
		"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %[1]s-1, namespace: %[2]s, labels: "+
		"{kubernetes.io/service-name: %[1]s}}\naddressType: IPv4\n"+
		"ports: [{name: http, port: 8000, protocol: TCP}]\nendpoints: [%[3]s]", name, ns, strings.Join(endpoints, ", ")))
}

func (r *rig) planner() *Planner {
	r.t.Helper()
	document, err := policy.Parse([]byte(r.config))
	require.NoError(r.t, err)
	return r.plannerWith(func() (*policy.Document, string) { return document, "" })
}

// plannerWith returns a Planner with a configuration.
func (r *rig) plannerWith(c policy.Source) *Planner {
	r.t.Helper()
	caches, err := informers.Options{Gateways: true}.Declare().Read(kit.Snapshot{Objects: r.objects})
	require.NoError(r.t, err)
	return NewPlanner(caches, c, r.options)
}

// plan plans the load balancer.
func (r *rig) plan() *Plan {
	r.t.Helper()
	return r.planWith(r.planner())
}

// planWith plans the load balancer with a Planner.
func (r *rig) planWith(p *Planner) *Plan {
	resolution := p.ResolveGateways()
	in := resolution.NewInput(balancerID)
	in.Record, in.Live, in.Now = r.record, r.live, r.now
	return p.BuildPlan(resolution, in)
}

// serve plans, and lets the load balancer have what the plan wants.
func (r *rig) serve() *Plan {
	r.t.Helper()
	p := r.plan()
	r.record, r.live = p.Record, emptyLive()
	w := p.Layout
	for _, l := range w.Listeners {
		r.live.Listeners[l.Name] = l
		r.live.Uses[lblayout.Ref{Kind: lbrecord.BackendSet, Name: l.DefaultSet}] = true
	}
	for _, x := range w.Policies {
		r.live.Policies[x.Name] = x
		for _, rule := range x.Rules {
			r.live.Uses[lblayout.Ref{Kind: lbrecord.BackendSet, Name: rule.Set}] = true
		}
	}
	for _, x := range w.RuleSets {
		r.live.RuleSets[x.Name] = x
	}
	for _, x := range w.Hostnames {
		r.live.Hostnames[x.Name] = x
	}
	for _, x := range w.Certificates {
		r.live.Certificates[x.Name] = true
	}
	for _, x := range w.Sets {
		r.live.Sets[x.Name] = len(p.Sets[x.Name].Wanted.Endpoints)
	}
	return p
}

// accepted returns "true", or the reason why the first parent does not accept a route.
func accepted(p *Plan, ns, name string) string {
	for _, r := range p.Routes {
		if r.Namespace == ns && r.Name == name {
			if a := r.parents[0].acceptance; !a.Accepted {
				return a.Reason + ": " + a.Message
			}
			return "true"
		}
	}
	return "no such route"
}

// setOf returns the set of the only rule with a text in its condition.
func setOf(t *testing.T, p *Plan, condition string) (string, *Set) {
	t.Helper()
	for _, x := range p.Layout.Policies {
		for _, rule := range x.Rules {
			if strings.Contains(rule.Condition, condition) {
				return rule.Set, p.Sets[rule.Set]
			}
		}
	}
	require.Fail(t, "no rule", condition)
	return "", nil
}
