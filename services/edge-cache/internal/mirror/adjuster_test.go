package mirror

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"fairlead.dev/services/edge-cache/internal/liveaddress"
)

// shownSlice is a store with one slice on edge-1.
type shownSlice struct {
	t        *testing.T
	adjuster *Adjuster

	mu       sync.Mutex
	upstream *discoveryv1.EndpointSlice // as the API server has it
	shown    *discoveryv1.EndpointSlice
	nodes    []string // that were projected again
}

// setReady changes the slice at the API server, and projects it.
func (s *shownSlice) setReady(ready bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.upstream.Endpoints[0].Conditions.Ready = &ready
	s.project()
}

// project projects the slice. The caller has the lock.
func (s *shownSlice) project() {
	s.shown = s.upstream.DeepCopy()
	s.adjuster.AdjustSlice("web", s.shown)
}

// ReprojectSlices implements liveaddress.Reprojector.
func (s *shownSlice) ReprojectSlices(...string) { s.t.Error("no address changes") }

// ReprojectNode implements liveaddress.Reprojector.
func (s *shownSlice) ReprojectNode(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes = append(s.nodes, name)
	s.project()
}

// state returns whether clients see the endpoint ready, and the nodes that were projected again.
func (s *shownSlice) state() (ready bool, nodes []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.shown.Endpoints[0].Conditions.Ready, s.nodes
}

// TestHoldsEndByThemselves wakes up a minute after the Node turned Ready.
func TestHoldsEndByThemselves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shownSlice{t: t, adjuster: NewAdjuster(liveaddress.New(liveaddress.Params{NodeName: "edge-1"}))}
		s.upstream = &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, AddressType: discoveryv1.AddressTypeIPv4,
		}
		s.upstream.Endpoints = []discoveryv1.Endpoint{{
			Addresses: []string{"10.0.0.1"}, NodeName: ptr.To("edge-1"),
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", UID: types.UID("a")},
			Conditions: discoveryv1.EndpointConditions{Serving: ptr.To(true)},
		}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.adjuster.Run(ctx, s)
		}()
		defer func() {
			cancel()
			<-done
		}()
		condition := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{condition}},
		}
		require.False(t, s.adjuster.UpdateNode(node))
		s.setReady(true)
		node.Status.Conditions[0].Status = corev1.ConditionUnknown
		require.True(t, s.adjuster.UpdateNode(node))
		s.setReady(false)
		ready, _ := s.state()
		require.True(t, ready)
		require.Equal(t, 1, s.adjuster.HeldEndpoints())
		require.NotEmpty(t, s.adjuster.ObjectState("web"))
		time.Sleep(time.Hour)
		node.Status.Conditions[0].Status = corev1.ConditionTrue
		require.True(t, s.adjuster.UpdateNode(node))
		time.Sleep(59 * time.Second)
		_, nodes := s.state()
		require.Empty(t, nodes)
		time.Sleep(2 * time.Second)
		ready, nodes = s.state()
		require.Equal(t, []string{"edge-1"}, nodes)
		require.False(t, ready)
		require.Zero(t, s.adjuster.HeldEndpoints())
	})
}
