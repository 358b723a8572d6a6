package ingress_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/kubetest"
)

// combinations are the components of services, the entry first. OME requires an engine in each.
var combinations = [][]string{{"engine"}, {"engine", "decoder"}, {"router", "engine"}, {"router", "engine", "decoder"}}

// exposure is a service that is exposed in some way.
type exposure struct {
	name     types.NamespacedName
	roles    []string
	entrance entrance
	shared   bool // by a path on a host that services share
	hosts    bool // components have hosts, too
	model    bool // also by the model header on the shared host
	local    bool // only within the cluster
}

// exposures returns all combinations of components, entrances and hosts. Services with all components have hosts for them.
func exposures() []exposure {
	var all []exposure
	for _, e := range entrances {
		for _, shared := range []bool{false, true} {
			for _, roles := range combinations {
				hosts := len(roles) == 3
				model := shared && hosts && e.values["strategy"] == "httproute"
				all = append(all, exposure{roles: roles, entrance: e, shared: shared, hosts: hosts, model: model})
			}
		}
		all = append(all, exposure{roles: []string{"router", "engine"}, entrance: e, local: true})
	}
	for i := range all {
		all[i].name = types.NamespacedName{Namespace: "entry", Name: fmt.Sprintf("s%d-%s", i, all[i].entrance.name)}
	}
	return all
}

// values returns the override of the service.
func (e *exposure) values() fields {
	values := e.entrance.with(fields{"perISVCSubdomain": !e.shared, "componentHosts": e.hosts})
	if e.model {
		values["modelBasedRoutingHeaderName"] = modelHeader
	}
	return values
}

// spec returns the specification of the service. Only components that requests should reach have pods.
func (e *exposure) spec() fields {
	spec := fields{}
	for _, role := range e.roles {
		component := fields{"minReplicas": 0, "annotations": fields{"ome.io/deploymentMode": "RawDeployment"}}
		if !e.local && e.serves(role) {
			component = fields{}
		}
		spec[role] = component
	}
	return spec
}

// serves reports whether requests should reach a component.
func (e *exposure) serves(role string) bool { return !e.local && (e.hosts || role == e.roles[0]) }

// request returns a request for the service, or for one of its components.
func (e *exposure) request(role string) question {
	name := strings.TrimSuffix(e.name.Name+"-"+role, "-")
	q := question{host: name + "." + e.name.Namespace + "." + domain, target: completions, body: strings.NewReader("{}")}
	if e.shared {
		q.host, q.target = "llm."+domain, "/"+e.name.Namespace+"/"+name+completions
	}
	return q
}

// wanted returns the expected answer: the component and the path that it sees, or a status.
func (e *exposure) wanted(role string) string {
	switch {
	case e.local:
		return "404"
	case role == "":
		return e.roles[0] + " " + completions
	case e.hosts && slices.Contains(e.roles[1:], role):
		return role + " " + completions
	}
	return "404"
}

// answer sends a request and returns the component that answers and the path that it saw, or the status.
func (e *exposure) answer(ctx context.Context, s *system, role string) (string, error) {
	r, err := e.entrance.plane(s).ask(ctx, e.request(role))
	if err != nil || r.echo.Name == "" {
		return r.String(), err
	}
	for _, role := range e.roles {
		if strings.HasPrefix(r.echo.Name, e.name.Name+"-"+role+"-") {
			return role + " " + r.String(), nil
		}
	}
	return "foreign pod " + r.echo.Name, nil
}

// assertRequestsReachTheEntry sends requests for every service, and for each component by the host or path that it would have.
func assertRequestsReachTheEntry(t *testing.T, s *system) {
	all := exposures()
	s.namespace(t, "entry")
	overrides := map[types.NamespacedName]fields{}
	for _, e := range all {
		overrides[e.name] = e.values()
	}
	s.overrideAll(t, overrides)
	var g errgroup.Group
	g.SetLimit(4)
	for _, e := range all {
		labels := map[string]string{}
		if e.local {
			labels["networking.knative.dev/visibility"] = "cluster-local"
		}
		g.Go(func() error { return s.create(t.Context(), e.name, labels, e.spec()) })
	}
	require.NoError(t, g.Wait())
	for _, e := range all {
		if e.local {
			s.awaitReason(t, e.name, "ClusterLocal")
			continue
		}
		s.awaitExposed(t, e.name, e.entrance.at)
	}
	for _, e := range all {
		e.await(t, s, "")
	}
	for _, e := range all { // everything is served by now: a host that is not served must not be
		for _, role := range []string{"router", "engine", "decoder"} {
			e.await(t, s, role)
		}
	}
	t.Run("explained", func(t *testing.T) {
		assertExplained(t, s, slices.DeleteFunc(all, func(e exposure) bool { return !e.hosts }))
	})
}

// await waits until a request for the service, or for one of its components, is answered as it should be.
func (e *exposure) await(t *testing.T, s *system, role string) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		got, err := e.answer(t.Context(), s, role)
		require.NoError(collect, err)
		require.Equal(collect, e.wanted(role), got, "%s %v %s", e.name, e.roles, role)
	}, kubetest.Patience, tick)
}
