package brownout_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/services/edge-cache/internal/brownout"
)

// world is the control plane's view of one node and one slice, and what a client is shown.
type world struct {
	keeper    *brownout.Tracker
	now       time.Time
	endpoints []discoveryv1.Endpoint
	shown     []discoveryv1.Endpoint
	changes   int
}

const (
	key      = "default/web-1"
	nodeName = "edge-1"
)

func newWorld(pods ...string) *world {
	w := &world{keeper: brownout.New(), now: time.Unix(0, 0)} // a clock that starts in 1970
	for _, pod := range pods {
		w.endpoints = append(w.endpoints, endpoint(pod))
	}
	w.node(corev1.ConditionTrue)
	w.adjust()
	return w
}

func endpoint(pod string) discoveryv1.Endpoint {
	ready, serving, terminating, name := true, true, false, nodeName
	return discoveryv1.Endpoint{
		Addresses: []string{"10.0.0.1"}, NodeName: &name,
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Name: pod, UID: types.UID("uid-" + pod)},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
	}
}

func sliceOf(name string, endpoints []discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		Endpoints:  endpoints,
	}
	return s.DeepCopy()
}

// node sets the Ready condition; each change has another transition time.
func (w *world) node(ready corev1.ConditionStatus) bool {
	w.changes++
	return w.keeper.SetNode(nodeOf(ready, time.Unix(int64(w.changes), 0)), w.now)
}

func nodeOf(ready corev1.ConditionStatus, transition time.Time) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
			{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(transition)},
		}},
	}
}

func (w *world) adjust() bool {
	s := sliceOf("web-1", w.endpoints)
	changed := w.keeper.AdjustConditions(key, s, w.now)
	w.shown = s.Endpoints
	return changed
}

// unready marks endpoints as the control plane does for a silent node.
func (w *world) unready(indexes ...int) {
	for _, i := range indexes {
		no := false
		w.endpoints[i].Conditions.Ready, w.endpoints[i].Conditions.Serving = &no, &no
	}
}

func (w *world) ready(indexes ...int) {
	for _, i := range indexes {
		yes := true
		w.endpoints[i].Conditions.Ready, w.endpoints[i].Conditions.Serving = &yes, &yes
	}
}

func (w *world) requireReady(t *testing.T, want ...bool) {
	t.Helper()
	var got []bool
	for _, e := range w.shown {
		require.Equal(t, *e.Conditions.Ready, *e.Conditions.Serving)
		got = append(got, *e.Conditions.Ready)
	}
	require.Equal(t, want, got)
}

// brownOut is the state after a node turned silent and its pods were marked unready.
func brownOut(t *testing.T, pods ...string) *world {
	t.Helper()
	w := newWorld(pods...)
	require.False(t, w.adjust())
	require.True(t, w.node(corev1.ConditionUnknown), "slices of the node may change")
	w.unready(0, 1)
	require.True(t, w.adjust())
	w.requireReady(t, true, true)
	require.Equal(t, 2, w.keeper.HeldEndpoints())
	return w
}

func TestBrownOutHoldsForAsLongAsTheNodeIsSilent(t *testing.T) {
	t.Parallel()
	w := brownOut(t, "a", "b")
	w.now = w.now.Add(30 * 24 * time.Hour)
	require.True(t, w.adjust())
	w.requireReady(t, true, true)
	_, due := w.keeper.NextExpiry()
	require.False(t, due)
	require.Empty(t, w.keeper.ExpireHolds(w.now))
}

func TestHoldEndsWhenTheEndpointIsReadyAgain(t *testing.T) {
	t.Parallel()
	w := brownOut(t, "a", "b")
	require.True(t, w.node(corev1.ConditionTrue))
	w.now = w.now.Add(10 * time.Second)
	w.ready(0, 1)
	require.False(t, w.adjust())
	require.Zero(t, w.keeper.HeldEndpoints())
	// It is over: the next failure of a pod counts, within the same minute too, once the time after the silence is over.
	w.now = w.now.Add(brownout.HoldAfterReady)
	require.Equal(t, []string{nodeName}, w.keeper.ExpireHolds(w.now))
	w.unready(0)
	require.False(t, w.adjust())
	w.requireReady(t, false, true)
}

func TestHoldEnds60SecondsAfterTheNodeTurnedReady(t *testing.T) {
	t.Parallel()
	w := brownOut(t, "a", "b")
	w.now = w.now.Add(time.Hour)
	require.True(t, w.node(corev1.ConditionTrue))
	w.ready(1)
	require.True(t, w.adjust())
	w.requireReady(t, true, true)
	due, ok := w.keeper.NextExpiry()
	require.True(t, ok)
	require.Equal(t, w.now.Add(time.Minute), due)
	w.now = due.Add(-time.Nanosecond)
	require.Empty(t, w.keeper.ExpireHolds(w.now))
	require.True(t, w.adjust())
	w.now = due
	require.Equal(t, []string{nodeName}, w.keeper.ExpireHolds(w.now))
	require.False(t, w.adjust())
	w.requireReady(t, false, true)
}

func TestHoldEndsWhenTheEndpointTerminates(t *testing.T) {
	t.Parallel()
	w := brownOut(t, "a", "b")
	terminating := true
	w.endpoints[0].Conditions.Terminating = &terminating
	require.True(t, w.adjust())
	w.requireReady(t, false, true)
	// What ended does not begin again.
	w.endpoints[0].Conditions.Terminating = nil
	w.adjust()
	w.requireReady(t, false, true)
}

func TestHoldEndsWhenTheEndpointIsRemoved(t *testing.T) {
	t.Parallel()
	w := brownOut(t, "a", "b")
	replaced := w.endpoints[1]
	w.endpoints = w.endpoints[:1]
	require.True(t, w.adjust())
	require.Equal(t, 1, w.keeper.HeldEndpoints())
	// The StatefulSet's new pod has the same name and address, and another UID.
	replaced.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "b", UID: "uid-new"}
	w.endpoints = append(w.endpoints, replaced)
	w.adjust()
	w.requireReady(t, true, false)
	w.keeper.DeleteObject(key)
	require.Zero(t, w.keeper.HeldEndpoints())
	w.adjust()
	w.requireReady(t, false, false)
}

func TestFailuresOfANodeThatSpeaksCount(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b")
	w.unready(0)
	require.False(t, w.adjust())
	w.requireReady(t, false, true)
	w.node(corev1.ConditionFalse)
	w.unready(1)
	require.False(t, w.adjust())
	w.requireReady(t, false, false)
}

func TestUnreadyBeforeTheOutageStaysUnready(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b")
	w.unready(0)
	w.adjust()
	w.now = w.now.Add(40 * time.Second)
	w.node(corev1.ConditionUnknown)
	w.unready(1)
	require.True(t, w.adjust())
	w.requireReady(t, false, true)
}

func TestSliceBeforeItsNode(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b")
	w.unready(0, 1)
	require.False(t, w.adjust())
	w.requireReady(t, false, false)
	w.now = w.now.Add(5 * time.Second)
	require.True(t, w.node(corev1.ConditionUnknown))
	require.True(t, w.adjust())
	w.requireReady(t, true, true)
}

// TestOutageOfTheCacheItself: node and cache were offline together. The cache sees the Node ready before and after, and unready endpoints.
func TestOutageOfTheCacheItself(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b")
	w.now = w.now.Add(time.Hour)
	require.True(t, w.node(corev1.ConditionTrue), "another transition time")
	w.unready(0, 1)
	require.True(t, w.adjust())
	w.requireReady(t, true, true)
	require.False(t, w.keeper.SetNode(nodeOf(corev1.ConditionTrue, time.Unix(int64(w.changes), 0)), w.now), "a heartbeat changes nothing")
	w.now = w.now.Add(time.Minute)
	require.Equal(t, []string{nodeName}, w.keeper.ExpireHolds(w.now))
	w.adjust()
	w.requireReady(t, false, false)
}

// TestRebootedNode answers before it is ready.
func TestRebootedNode(t *testing.T) {
	t.Parallel()
	w := brownOut(t, "a", "b")
	w.now = w.now.Add(time.Hour)
	require.True(t, w.node(corev1.ConditionFalse))
	w.now = w.now.Add(2 * time.Minute)
	require.True(t, w.adjust())
	require.True(t, w.node(corev1.ConditionTrue))
	due, _ := w.keeper.NextExpiry()
	require.Equal(t, w.now.Add(time.Minute), due)
	require.True(t, w.node(corev1.ConditionUnknown))
	w.now = w.now.Add(time.Hour)
	require.True(t, w.adjust(), "silent again: the minute does not go on")

	w.node(corev1.ConditionFalse)
	w.now = w.now.Add(brownout.HoldAfterNotReady)
	require.Equal(t, []string{nodeName}, w.keeper.ExpireHolds(w.now))
	require.False(t, w.adjust(), "a node that never gets ready")
	w.requireReady(t, false, false)
	require.False(t, w.node(corev1.ConditionTrue), "it ended: the Node does not start it again")
	require.False(t, w.adjust())
}

func TestDeletedNodeHoldsNothing(t *testing.T) {
	t.Parallel()
	w := brownOut(t, "a", "b")
	w.keeper.DeleteNode(nodeName)
	require.False(t, w.adjust())
	w.requireReady(t, false, false)
}

func TestConditionsThatAreAbsent(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b")
	w.endpoints[0].Conditions = discoveryv1.EndpointConditions{} // ready
	w.endpoints[1].NodeName = nil                                // of no node: never held
	s := sliceOf("web-1", w.endpoints)
	require.False(t, w.keeper.AdjustConditions(key, s, w.now))
	require.Equal(t, w.endpoints, s.Endpoints, "nothing is changed without need")
	w.node(corev1.ConditionUnknown)
	w.unready(0, 1)
	require.True(t, w.adjust())
	w.requireReady(t, true, false)
}

func TestNotServingIsHeldAsItWas(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b")
	no := false
	w.endpoints[0].Conditions.Serving = &no
	w.adjust()
	w.node(corev1.ConditionUnknown)
	w.unready(0)
	require.True(t, w.adjust())
	require.True(t, *w.shown[0].Conditions.Ready)
	require.False(t, *w.shown[0].Conditions.Serving)
}

// TestEndpointThatMoves is held in its new slice of the same service, and in no slice of another service.
func TestEndpointThatMoves(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b")
	w.node(corev1.ConditionUnknown)
	w.unready(0, 1)
	other := sliceOf("api-1", w.endpoints)
	other.Labels[discoveryv1.LabelServiceName] = "api"
	require.False(t, w.keeper.AdjustConditions("default/api-1", other, w.now))
	moved := sliceOf("web-2", w.endpoints[1:])
	require.True(t, w.keeper.AdjustConditions("default/web-2", moved, w.now))
	w.endpoints = w.endpoints[:1]
	require.True(t, w.adjust())
	require.Equal(t, 2, w.keeper.HeldEndpoints())
}

// TestRestart continues holds from the journal: while the node is silent, and in the minute after.
func TestRestart(t *testing.T) {
	t.Parallel()
	for _, condition := range []corev1.ConditionStatus{corev1.ConditionUnknown, corev1.ConditionTrue} {
		w := brownOut(t, "a", "b")
		state := w.keeper.ObjectState(key)
		w.keeper = brownout.New()
		w.now = time.Unix(5, 0)
		require.NoError(t, w.keeper.RestoreObject(key, state))
		w.node(condition)
		require.True(t, w.adjust(), condition)
		w.requireReady(t, true, true)
		require.Equal(t, state, w.keeper.ObjectState(key))
		_, due := w.keeper.NextExpiry()
		require.Equal(t, condition == corev1.ConditionTrue, due)
	}
	w := newWorld("a")
	require.Empty(t, w.keeper.ObjectState(key))
	require.Empty(t, w.keeper.ObjectState("default/unknown"))
	require.Error(t, w.keeper.RestoreObject(key, make([]byte, 7)))
	require.Error(t, w.keeper.RestoreObject(key, make([]byte, 8*1001)))
}

// TestStateIsBounded runs random histories, then removes everything: nothing stays.
func TestStateIsBounded(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	k := brownout.New()
	now := time.Unix(0, 0)
	statuses := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionUnknown, corev1.ConditionFalse}
	for step := range 20_000 {
		now = now.Add(time.Duration(random.IntN(5000)) * time.Millisecond)
		k.SetNode(nodeOf(statuses[random.IntN(3)], time.Unix(int64(step), 0)), now)
		name := fmt.Sprint(random.IntN(20))
		var endpoints []discoveryv1.Endpoint
		for pod := range random.IntN(10) {
			e := endpoint(fmt.Sprint(name, pod))
			ready := random.IntN(2) == 0
			e.Conditions.Ready = &ready
			endpoints = append(endpoints, e)
		}
		s := sliceOf(name, endpoints)
		k.AdjustConditions(name, s, now)
		require.LessOrEqual(t, len(k.ObjectState(name)), 8*len(endpoints))
		k.ExpireHolds(now)
	}
	for name := range 20 {
		if name%2 == 0 {
			k.DeleteObject(fmt.Sprint(name))
		} else {
			k.AdjustConditions(fmt.Sprint(name), sliceOf(fmt.Sprint(name), nil), now)
		}
	}
	require.Zero(t, k.HeldEndpoints())
	require.True(t, k.IsEmpty())
}

// TestLargeService moves an endpoint from one slice to another one. In a service with as many slices as a tenant can make, nobody searches
// them for it: the work on one slice does not grow with their number.
func TestLargeService(t *testing.T) {
	t.Parallel()
	for count, found := range map[int]bool{10: true, 64: true, 65: false, 5000: false} {
		w := newWorld()
		for i := range count {
			w.keeper.AdjustConditions(fmt.Sprint("default/", i),
				sliceOf(fmt.Sprint(i), []discoveryv1.Endpoint{endpoint(fmt.Sprint("x", i))}), w.now)
		}
		w.node(corev1.ConditionUnknown)
		no, moved := false, endpoint("x1")
		moved.Conditions.Ready = &no
		s := sliceOf("0", []discoveryv1.Endpoint{endpoint("x0"), moved})
		w.keeper.AdjustConditions("default/0", s, w.now)
		require.Equal(t, found, *s.Endpoints[1].Conditions.Ready, "%d slices", count)
	}
}

// TestTurnsUnreadyForetellsAdjust compares the forecast with what clients see next, over random states of endpoints, slices and the node.
func TestTurnsUnreadyForetellsAdjust(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	foretold, states := 0, []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}
	for range 300 {
		w := newWorld("a", "b")
		for range 40 {
			switch r.IntN(4) {
			case 0:
				w.node(states[r.IntN(len(states))])
			case 1:
				w.now = w.now.Add(time.Duration(r.IntN(90)) * time.Second)
			default:
				change(w, r)
			}
			before, next := w.shown, sliceOf("web-1", w.endpoints)
			got := w.keeper.TurnsUnready(key, next, w.now)
			w.adjust()
			want := false
			for i, e := range w.shown {
				terminating := *e.Conditions.Terminating
				want = want || *before[i].Conditions.Ready && !*before[i].Conditions.Terminating && !*e.Conditions.Ready && !terminating
			}
			require.Equal(t, want, got, "%v", w.shown)
			if want {
				foretold++
			}
		}
	}
	require.Greater(t, foretold, 500)
}

// change makes one endpoint ready, unready or terminating.
func change(w *world, r *rand.Rand) {
	i := r.IntN(len(w.endpoints))
	terminating := r.IntN(10) == 0
	w.endpoints[i].Conditions.Terminating = &terminating
	if r.IntN(2) == 0 {
		w.ready(i)
	} else {
		w.unready(i)
	}
}
