package ingress_test

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest/audit"
)

// reconciler is the ingress-reconciler in the audit log and among the roles.
var reconciler = audit.Program{Account: types.NamespacedName{Namespace: stack.ReconcilerNamespace, Name: stack.Reconciler}, Selector: reconcilerPod}

// calls returns the requests of the ingress-reconciler since a time, in order. Watches that have not ended are among them.
func (s *system) calls(t *testing.T, since time.Time) []audit.Call {
	t.Helper()
	return audit.Calls(t, s.Cluster, reconciler, since)
}

// objectWrites returns the writes of objects and conditions, without Leases and Events.
func objectWrites(all []audit.Call) []audit.Call {
	return slices.DeleteFunc(slices.Clone(all), func(c audit.Call) bool {
		return !c.Writes() || slices.Contains([]string{"leases", "events"}, c.Object.Resource)
	})
}
