package gatewayplan

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/lblayout"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/ociapi"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// conditionsOf returns conditions as "Type=Status/Reason@generation".
func conditionsOf(all []metav1.Condition) map[string]string {
	texts := map[string]string{}
	for _, c := range all {
		texts[c.Type] = fmt.Sprintf("%s/%s@%d", c.Status, c.Reason, c.ObservedGeneration)
	}
	return texts
}

// TestStatus has a Gateway and a route whose second generation is on its way to the load balancer.
func TestStatus(t *testing.T) {
	t.Parallel()
	ref := func(p *Plan, kind lbrecord.Kind) lblayout.Ref {
		names := map[lbrecord.Kind]string{lbrecord.RoutingPolicy: p.Layout.Policies[0].Name, lbrecord.Listener: p.Layout.Listeners[0].Name}
		return lblayout.Ref{Kind: kind, Name: names[kind]}
	}
	tests := []struct {
		name    string
		reports func(p *Plan, r *Reports)
		gateway string // Programmed
		route   map[string]string
	}{
		{
			"programmed", func(*Plan, *Reports) {},
			"True/Programmed@2",
			map[string]string{
				"Accepted": "True/Accepted@2", "ResolvedRefs": "True/ResolvedRefs@2", ConditionBackendsSynced: "True/Synced@2",
			},
		},
		{
			"the report is about an older layout", func(_ *Plan, r *Reports) { r.Current = false },
			"True/Programmed@1",
			map[string]string{
				"Accepted": "True/Accepted@1", "ResolvedRefs": "True/ResolvedRefs@1", ConditionBackendsSynced: "False/Pending@2",
			},
		},
		{
			"the policy waits", func(p *Plan, r *Reports) {
				r.Layout.Behind[ref(p, lbrecord.RoutingPolicy)] = plan.Problem{Reason: v1alpha1.ReasonPending}
			},
			"True/Programmed@1",
			map[string]string{
				"Accepted": "True/Accepted@1", "ResolvedRefs": "True/ResolvedRefs@1", ConditionBackendsSynced: "False/Pending@2",
			},
		},
		{
			"the listener fails", func(p *Plan, r *Reports) {
				r.Layout.Behind[ref(p, lbrecord.Listener)] = plan.Problem{
					Reason: v1alpha1.ReasonWorkRequestFailed, Message: "work request ocid1 failed",
				}
			},
			"False/WorkRequestFailed@2",
			map[string]string{
				"Accepted": "True/Accepted@1", "ResolvedRefs": "True/ResolvedRefs@1", ConditionBackendsSynced: "False/WorkRequestFailed@2",
			},
		},
		{
			"the load balancer cannot be read", func(_ *Plan, r *Reports) {
				r.Layout = &actor.LayoutReport{Problem: plan.Problem{Reason: v1alpha1.ReasonAuthFailed, Message: "401"}}
			},
			"False/AuthFailed@2",
			map[string]string{
				"Accepted": "True/Accepted@1", "ResolvedRefs": "True/ResolvedRefs@1", ConditionBackendsSynced: "False/AuthFailed@2",
			},
		},
		{
			"the record was lost", func(p *Plan, _ *Reports) { p.Lost = []lblayout.Ref{ref(p, lbrecord.Listener)} },
			"False/RecordLost@2",
			map[string]string{
				"Accepted": "True/Accepted@1", "ResolvedRefs": "True/ResolvedRefs@1", ConditionBackendsSynced: "False/RecordLost@2",
			},
		},
		{
			"backends wait", func(_ *Plan, r *Reports) {
				r.Set = func(string) *actor.Report { return &actor.Report{Known: true, Reason: v1alpha1.ReasonPending} }
			},
			"True/Programmed@2",
			map[string]string{
				"Accepted": "True/Accepted@2", "ResolvedRefs": "True/ResolvedRefs@2", ConditionBackendsSynced: "False/Pending@2",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.gateway("web", "", "", webListener)
			r.service("models", "chat", 1)
			r.route("models", "chat", toChat)
			p := r.serve()
			reports := func() *Reports {
				return &Reports{
					Layout: &actor.LayoutReport{
						Live: r.live, LoadBalancer: &ociapi.LoadBalancer{Addresses: []string{"192.0.2.1"}},
						Behind: map[lblayout.Ref]plan.Problem{},
					}, Current: true, Now: time.Now(), Set: func(string) *actor.Report {
						return &actor.Report{Known: true, Synced: true, Active: 1}
					},
				}
			}
			statuses := p.GatewayStatuses(reports())
			require.Len(t, statuses, 1)
			assert.Equal(t, "True/Programmed@1", conditionsOf(statuses[0].Status.Conditions)["Programmed"])
			assert.Equal(t, "192.0.2.1", statuses[0].Status.Addresses[0].Value)
			assert.EqualValues(t, 1, statuses[0].Status.Listeners[0].AttachedRoutes)
			routes := p.RouteStatuses(reports())
			require.Len(t, routes, 1)
			p.Gateways[0].Status, p.Gateways[0].Generation = statuses[0].Status, 2
			p.Routes[0].Status.Parents, p.Routes[0].Generation = routes[0].Parents, 2

			next := reports()
			tt.reports(p, next)
			assert.Equal(t, tt.gateway, conditionsOf(p.GatewayStatuses(next)[0].Status.Conditions)["Programmed"])
			assert.Equal(t, tt.route, conditionsOf(p.RouteStatuses(next)[0].Parents[0].Conditions))
		})
	}
}

// TestPartiallyInvalid has a route of which one rule is programmed, and one that has none.
func TestPartiallyInvalid(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.gateway("web", "", "", webListener)
	r.service("models", "chat", 1)
	r.route("models", "some",
		"rules: [{matches: [{method: GET}], backendRefs: [{name: chat, port: 80}]}, {backendRefs: [{name: chat, port: 80}]}]")
	r.route("models", "none",
		"rules: [{matches: [{method: GET}], backendRefs: [{name: chat, port: 80}]}, {filters: [{type: CORS, cors: {}}]}]")
	p := r.serve()
	all := map[string]map[string]string{}
	messages := map[string]string{}
	for _, s := range p.RouteStatuses(&Reports{Layout: &actor.LayoutReport{Live: r.live}, Current: true, Now: time.Now(),
		Set: func(string) *actor.Report { return nil }}) {
		all[s.Route.Name] = conditionsOf(s.Parents[0].Conditions)
		for _, c := range s.Parents[0].Conditions {
			messages[s.Route.Name+" "+c.Type] = c.Message
		}
	}
	assert.Equal(t, "True/Accepted@1", all["some"]["Accepted"])
	assert.Equal(t, "True/UnsupportedValue@1", all["some"]["PartiallyInvalid"])
	assert.Contains(t, messages["some PartiallyInvalid"], "Dropped Rule: rule 0")
	assert.Equal(t, "False/UnsupportedValue@1", all["none"]["Accepted"])
	assert.NotContains(t, all["none"], "PartiallyInvalid")
	assert.NotContains(t, all["none"], ConditionBackendsSynced)
	assert.Contains(t, messages["none Accepted"], "rule 1: filter CORS", "nothing is dropped in silence")
}

func TestSummaries(t *testing.T) {
	t.Parallel()
	condition := func(kind, status, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: reason}
	}
	synced := condition(ConditionBackendsSynced, "True", "Synced")
	tests := []struct {
		want string
		all  []metav1.Condition
	}{
		{"", nil},
		{
			"HostConflict",
			[]metav1.Condition{condition("Accepted", "False", "HostConflict"), condition("ResolvedRefs", "True", "ResolvedRefs")},
		},
		{"Pending", []metav1.Condition{condition("Accepted", "Unknown", "Pending"), condition("ResolvedRefs", "True", "ResolvedRefs")}},
		{
			"BackendNotFound",
			[]metav1.Condition{condition("Accepted", "True", "Accepted"), condition("ResolvedRefs", "False", "BackendNotFound"), synced},
		},
		{
			"PartiallyInvalid",
			[]metav1.Condition{
				condition("Accepted", "True", "Accepted"), condition("PartiallyInvalid", "True", "UnsupportedValue"),
				condition("ResolvedRefs", "True", "ResolvedRefs"), synced,
			},
		},
		{
			"WorkRequestFailed",
			[]metav1.Condition{
				condition("Accepted", "True", "Accepted"), condition("ResolvedRefs", "True", "ResolvedRefs"),
				condition(ConditionBackendsSynced, "False", "WorkRequestFailed"),
			},
		},
		{
			"Synced",
			[]metav1.Condition{condition("Accepted", "True", "Accepted"), condition("ResolvedRefs", "True", "ResolvedRefs"), synced},
		},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			t.Parallel()
			s := gatewayv1.RouteParentStatus{Conditions: tt.all}
			assert.Equal(t, tt.want, ParentSummary(&s).Reason)
			good := gatewayv1.RouteParentStatus{Conditions: []metav1.Condition{synced}}
			if tt.want != "" {
				assert.Equal(t, tt.want, RouteSummary([]gatewayv1.RouteParentStatus{good, s}).Reason, "the worst parent counts")
			}
		})
	}
}
