package mirror

import (
	"context"
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
	upstream *discoveryv1.EndpointSlice // as the API server has it
	shown    *discoveryv1.EndpointSlice
	nodes    []string // that were projected again
}

// show projects the slice.
func (s *shownSlice) show() {
	s.shown = s.upstream.DeepCopy()
	s.adjuster.AdjustSlice("web", s.shown)
}

// ReprojectSlices implements liveaddress.Reprojector.
func (s *shownSlice) ReprojectSlices(...string) { s.t.Error("no address changes") }

// ReprojectNode implements liveaddress.Reprojector.
func (s *shownSlice) ReprojectNode(name string) {
	s.nodes = append(s.nodes, name)
	s.show()
}

// TestHoldsEndByThemselves wakes up a minute after the Node turned Ready.
func TestHoldsEndByThemselves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shownSlice{t: t, adjuster: NewAdjuster(liveaddress.New(liveaddress.Params{NodeName: "edge-1"}))}
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
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{condition}}}
		require.False(t, s.adjuster.UpdateNode(node))
		s.upstream = &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, AddressType: discoveryv1.AddressTypeIPv4}
		s.upstream.Endpoints = []discoveryv1.Endpoint{{
			Addresses: []string{"10.0.0.1"}, NodeName: ptr.To("edge-1"), TargetRef: &corev1.ObjectReference{Kind: "Pod", UID: types.UID("a")},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true)},
		}}
		s.show()
		node.Status.Conditions[0].Status = corev1.ConditionUnknown
		require.True(t, s.adjuster.UpdateNode(node))
		s.upstream.Endpoints[0].Conditions.Ready = ptr.To(false)
		s.show()
		require.True(t, *s.shown.Endpoints[0].Conditions.Ready)
		require.Equal(t, 1, s.adjuster.HeldEndpoints())
		require.NotEmpty(t, s.adjuster.ObjectState("web"))
		time.Sleep(time.Hour)
		node.Status.Conditions[0].Status = corev1.ConditionTrue
		require.True(t, s.adjuster.UpdateNode(node))
		time.Sleep(59 * time.Second)
		require.Empty(t, s.nodes)
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"edge-1"}, s.nodes)
		require.False(t, *s.shown.Endpoints[0].Conditions.Ready)
		require.Zero(t, s.adjuster.HeldEndpoints())
	})
}
