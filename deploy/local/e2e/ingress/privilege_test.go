package ingress_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/audit"
)

// seldom are permissions that tests may not use, and why the chart grants them.
var seldom = map[string]string{
	"patch /events": "an Event that repeats within minutes raises the count of the one that exists",
}

// assertLeastPrivilege compares the permissions that the chart grants with the requests in the audit log. It creates objects of
// every kind, and removes their labels: the program then reads each by its name, as a foreign object in the way. It also runs
// sub-commands in the pod, with the permissions of the pod.
func assertLeastPrivilege(t *testing.T, s *system) {
	s.namespace(t, "kinds")
	s.apply(t, "references.yaml")
	services := []struct {
		name    types.NamespacedName
		values  fields
		objects int
	}{
		{name: types.NamespacedName{Namespace: "kinds", Name: "route"}, values: envoyRoute.values, objects: 1},
		{name: types.NamespacedName{Namespace: "kinds", Name: "ingress"}, values: traefikIngress.with(fields{"perISVCSubdomain": false}), objects: 2},
		{name: types.NamespacedName{Namespace: "kinds", Name: "istio"}, values: fields{"strategy": "virtualservice", "ingressGateway": "istio/public"}, objects: 1},
		{
			name:   types.NamespacedName{Namespace: "kinds", Name: "pool"},
			values: envoyRoute.with(fields{"inferencePool": fields{"endpointPickerRef": fields{"name": "picker"}}}), objects: 2,
		},
	}
	overrides := map[types.NamespacedName]fields{}
	for _, service := range services {
		overrides[service.name] = service.values
	}
	s.configure(t, baseConfiguration(0), overrides)
	kinds := map[string]bool{}
	for _, service := range services {
		require.NoError(t, s.create(t.Context(), service.name, nil, fields{"engine": fields{}}))
		found := s.awaitObjects(t, service.name, service.objects)
		for i := range found {
			kinds[found[i].GetKind()] = true
			s.unlabel(t, &found[i])
		}
		assert.ElementsMatch(t, uids(found), uids(s.awaitObjects(t, service.name, service.objects)), "%s", service.name)
	}
	assert.Len(t, kinds, len(written), "%v", kinds)
	s.configure(t, fields{"enabled": false}, nil)
	for _, service := range services {
		s.awaitObjects(t, service.name, 0)
	}

	s.runCommands(t)
	audit.AssertLeastPrivilege(t, s.Cluster, audit.LeastPrivilege{Program: reconciler, Seldom: seldom, Former: s.previous})
}

// runCommands runs sub-commands in a pod. Those that find differences end with exit code 2, which kubectl reports as an error.
func (s *system) runCommands(t *testing.T) {
	t.Helper()
	_, err := s.runInPod(t, "plan", "--config-map="+stack.ReconcilerNamespace+"/"+stack.Reconciler)
	if err != nil {
		require.ErrorContains(t, err, "exit code 2")
	}
}

// awaitObjects waits until a service has the wanted number of objects, and returns them.
func (s *system) awaitObjects(t *testing.T, name types.NamespacedName, want int) (found []made) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		var err error
		found, err = s.objects(t.Context(), name)
		require.NoError(collect, err)
		require.Len(collect, found, want, "%s", name)
	}, kubetest.Patience, tick)
	return found
}

// unlabel removes the label that marks an object as managed.
func (s *system) unlabel(t *testing.T, o *made) {
	t.Helper()
	for _, kind := range written {
		if kind.Group == o.GroupVersionKind().Group {
			s.patch(t, kind, types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()},
				fields{"metadata": fields{"labels": fields{"fairlead.dev/managed-by": nil}}})
		}
	}
}
