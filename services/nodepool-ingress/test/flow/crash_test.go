//go:build system

package flow

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/nodepool-ingress/internal/informers"
	"fairlead.dev/services/nodepool-ingress/internal/plan"
)

// maxWrites is more than the number of writes of a test below.
const maxWrites = 60

// TestCrashes lets the program crash at each of its writes: before the API server has it, and after. The next program finishes: it creates
// what is missing, and deletes what is left. A pool is created, and the object is deleted.
func TestCrashes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.pools("hangzhou")
	r.deploy()
	step := 2 // crashes before even writes, and after odd ones: all writes have their turn
	if testing.Short() {
		step = 3
	}
	steps := []struct {
		name string
		act  func()
		done func() (string, bool)
	}{
		{name: "create", act: func() { r.create("edge", `{pools: [{name: hangzhou}]}`) }, done: func() (string, bool) {
			got := r.condition("edge", "hangzhou", conditionR)
			return got, got == ready
		}},
		{
			name: "delete", act: func() { r.delete(informers.YurtIngresses, "", "edge") },
			done: func() (string, bool) { return "", r.get("edge") == nil },
		},
	}
	for _, before := range []bool{true, false} {
		for _, crashing := range steps {
			crashed := 0
			first := 1
			if before {
				first = 2
			}
			for at := first; at < maxWrites; at += step {
				p := r.proxy()
				p.before = before
				for _, s := range steps {
					if s.name != crashing.name {
						if s.name == "create" {
							stop := r.start()
							s.act()
							r.eventually(s.done, "%s", s.name)
							stop()
						}
						continue
					}
					p.at = at
					s.act()
					if p.run(r, s.done) {
						crashed++
						t.Logf("crash of %s at write %d, lost: %t: %s", s.name, at, before, p.last())
					}
				}
				stop := r.start()
				r.eventually(crashing.done, "%s after a crash at write %d, lost: %t", crashing.name, at, before)
				y := r.get("edge")
				if crashing.name == "create" {
					assert.NotEmpty(t, r.owned(y.UID, "hangzhou"))
					r.delete(informers.YurtIngresses, "", "edge")
					r.eventually(func() (string, bool) { return "", r.get("edge") == nil }, "the object is gone")
				}
				stop()
				for _, k := range plan.Kinds() {
					assert.Empty(t, r.managed(k.Resource), "crash at write %d of %s", at, crashing.name)
				}
				if p.written() < at {
					break // it no longer crashes
				}
			}
			assert.Greater(t, crashed, 2, "%s writes several times", crashing.name)
		}
	}
}

// run runs the program until it crashes, or is done and has nothing more to write. It reports whether it crashed.
func (p *proxy) run(r *rig, done func() (string, bool)) bool {
	stop := r.start(through(p))
	defer stop()
	crashed, writes, still := false, -1, 0 // still: looks in a row without a write
	r.eventually(func() (string, bool) {
		select {
		case <-p.crash:
			crashed = true
			return "", true
		default:
		}
		still++
		if n := p.written(); n != writes {
			writes, still = n, 0
		}
		last, ended := done()
		return last, ended && still > int(quiet/tick)
	}, "the program crashes or ends")
	return crashed
}

// last returns the last write.
func (p *proxy) last() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writes[len(p.writes)-1]
}

// written returns the number of writes.
func (p *proxy) written() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.writes)
}

// TestNodePoolGoesFirst deletes the NodePool and its CRD while an object lists the pool. The pool goes on, and the object can be deleted.
func TestNodePoolGoesFirst(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1beta2", "v1beta1", "v1alpha1"} {
		t.Run(version, func(t *testing.T) {
			r := newRig(t)
			r.apply(nodePoolCRD(version))
			r.apply(fmt.Sprintf("{apiVersion: apps.openyurt.io/%s, kind: NodePool, metadata: {name: hangzhou.cn}, spec: {type: Edge}}",
				version))
			r.deploy()
			r.start()
			y := r.create("edge", `{pools: [{name: hangzhou.cn}, {name: nowhere}]}`)
			r.await("edge", "hangzhou.cn", conditionR, ready) // before it has a node
			r.await("edge", "nowhere", v1alpha1.ConditionAccepted, "False PoolNotFound")
			assert.Empty(t, r.owned(y.UID, "nowhere"))
			objects := len(r.owned(y.UID, ""))

			_, err := r.cluster.Kubectl(t.Context(), "delete", "crd", "nodepools.apps.openyurt.io", "--timeout="+kubetest.Patience.String())
			require.NoError(t, err)
			r.await("edge", "hangzhou.cn", v1alpha1.ConditionAccepted, "False PoolNotFound")
			assert.Len(t, r.owned(y.UID, ""), objects, "nothing is deleted")
			r.delete(informers.YurtIngresses, "", "edge")
			r.eventually(func() (string, bool) { return "", r.get("edge") == nil }, "the object is gone")
			assert.Empty(t, r.owned(y.UID, ""))
		})
	}
}

// nodePoolCRD returns a CRD of NodePools with one version.
func nodePoolCRD(version string) string {
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: nodepools.apps.openyurt.io}
spec:
  group: apps.openyurt.io
  scope: Cluster
  names: {kind: NodePool, listKind: NodePoolList, plural: nodepools, singular: nodepool}
  versions:
  - name: %s
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, version)
}
