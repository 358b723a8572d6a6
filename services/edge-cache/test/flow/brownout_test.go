//go:build system

package flow

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"fairlead.dev/pkg/kubetest"
)

// nodeLink is the way of Nodes to the cache. It can be slower than that of other kinds.
type nodeLink struct {
	held    atomic.Pointer[chan struct{}] // events of Nodes wait until it is closed
	refuse  atomic.Bool                   // of lists
	lists   atomic.Int64
	watches atomic.Int64
}

// heldBody is the stream of a watch.
type heldBody struct {
	io.ReadCloser

	link *nodeLink
	end  <-chan struct{}
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if held := b.link.held.Load(); held != nil && n > 0 {
		select {
		case <-*held:
		case <-b.end:
		}
	}
	return n, err
}

func (l *nodeLink) hold() (release func()) {
	held := make(chan struct{})
	l.held.Store(&held)
	return func() { l.held.Store(nil); close(held) }
}

// modify is a function of a reverse proxy.
func (l *nodeLink) modify(r *http.Response) error {
	switch {
	case r.Request.URL.Path != "/api/v1/nodes":
	case r.Request.URL.Query().Has("watch"):
		l.watches.Add(1)
		r.Body = &heldBody{r.Body, l, r.Request.Context().Done()}
	default:
		l.lists.Add(1)
		if l.refuse.Load() {
			r.Body.Close()
			r.StatusCode, r.Body = http.StatusInternalServerError, io.NopCloser(strings.NewReader("not now"))
			r.Header.Del("Content-Length")
			r.ContentLength = -1
		}
	}
	return nil
}

// brownOut is a pool of one node with one ready endpoint, a cache behind a node link, and what a client of it sees.
type brownOut struct {
	*edge

	link  nodeLink
	liar  *liar
	shown <-chan watch.Event
}

func newBrownOut(t *testing.T) *brownOut {
	t.Helper()
	w := newWorld(t)
	w.node("in-1", "edge")
	b := &brownOut{liar: w.liar()}
	b.liar.proxy.ModifyResponse = b.link.modify
	b.edge = w.prepare("edge", b.liar.configure)
	t.Cleanup(b.stop)
	b.nodeTurns(corev1.ConditionTrue)
	w.createSlice(slice("default", "a", "a-0", "in-1"))
	b.begin(t)
	return b
}

// begin starts the cache, which knows of no silence, and waits until it watches Nodes: a list would not be held.
func (b *brownOut) begin(t *testing.T) {
	t.Helper()
	watches := b.link.watches.Load()
	b.start()
	b.ready()
	require.Eventually(t, func() bool { return b.link.watches.Load() > watches }, kubetest.Patience, tick)
	shown, err := b.client().DiscoveryV1().EndpointSlices("default").Watch(t.Context(),
		metav1.ListOptions{FieldSelector: "metadata.name=a-0"})
	require.NoError(t, err)
	b.shown = shown.ResultChan()
	require.True(t, b.next(t))
}

// nodeTurns sets the Ready condition of the node.
func (b *brownOut) nodeTurns(status corev1.ConditionStatus) {
	b.t.Helper()
	nodes := b.direct.CoreV1().Nodes()
	n, err := nodes.Get(b.t.Context(), "in-1", metav1.GetOptions{})
	require.NoError(b.t, err)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.Now()}}
	_, err = nodes.UpdateStatus(b.t.Context(), n, metav1.UpdateOptions{})
	require.NoError(b.t, err)
}

// endpointTurns sets the condition of the endpoint, as the control plane shows it.
func (b *brownOut) endpointTurns(ready bool) {
	b.t.Helper()
	slices := b.direct.DiscoveryV1().EndpointSlices("default")
	s, err := slices.Get(b.t.Context(), "a-0", metav1.GetOptions{})
	require.NoError(b.t, err)
	s.Endpoints[0].Conditions.Ready = &ready
	_, err = slices.Update(b.t.Context(), s, metav1.UpdateOptions{})
	require.NoError(b.t, err)
}

// next returns whether the endpoint is ready in the next event.
func (b *brownOut) next(t *testing.T) (ready bool) {
	t.Helper()
	select {
	case e, open := <-b.shown:
		require.True(t, open, "the stream ended")
		s, ok := e.Object.(*discoveryv1.EndpointSlice)
		require.True(t, ok, "%v", e)
		return *s.Endpoints[0].Conditions.Ready
	case <-time.After(kubetest.Patience):
		require.Fail(t, "no event")
		return false
	}
}

// seesNothing requires that the client gets no event for some time.
func (b *brownOut) seesNothing(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case e := <-b.shown:
		require.Fail(t, "an event before the Node", "%+v", e.Object)
	case <-time.After(d):
	}
}

// seesReadyNode waits until the cache has the Node that is ready.
func (b *brownOut) seesReadyNode(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		n, err := b.client().CoreV1().Nodes().Get(t.Context(), "in-1", metav1.GetOptions{ResourceVersion: "0"})
		return err == nil && n.Status.Conditions[0].Status == corev1.ConditionTrue
	}, kubetest.Patience, tick)
}

// TestSlicesWaitForTheirNodes lets the slice of a silent node arrive earlier than its Node. Clients never see the endpoint unready.
func TestSlicesWaitForTheirNodes(t *testing.T) {
	t.Parallel()
	b := newBrownOut(t)
	for _, late := range []time.Duration{20 * time.Millisecond, 2 * time.Second, 5 * time.Second} {
		release := b.link.hold()
		b.nodeTurns(corev1.ConditionUnknown)
		b.endpointTurns(false)
		b.seesNothing(t, late)
		release()
		assert.True(t, b.next(t), "the endpoint is held, %v late", late)
		b.nodeTurns(corev1.ConditionTrue)
		b.endpointTurns(true)
		assert.True(t, b.next(t))
		b.seesReadyNode(t) // it can be later than the slice, and the next cache would begin with a silent node
		b.stop()
		b.begin(t)
	}
}

// TestListOfSlicesWaitsForNodes does the same after the history of slices is gone.
func TestListOfSlicesWaitsForNodes(t *testing.T) {
	t.Parallel()
	b := newBrownOut(t)
	release := b.link.hold()
	b.liar.tell(func(out http.ResponseWriter, _ *http.Request) { http.Error(out, "too old", http.StatusGone) })
	b.nodeTurns(corev1.ConditionUnknown)
	b.endpointTurns(false)
	require.Eventually(t, func() bool { return b.liar.lies.Load() > 0 }, kubetest.Patience, tick)
	b.liar.tell(nil)
	b.seesNothing(t, 3*time.Second)
	release()
	assert.True(t, b.next(t))
}

// TestUnreadyEndpointsOfANodeThatSpeaks flaps faster than Nodes can be asked for. The client sees the last state, and the API server has
// few lists to answer.
func TestUnreadyEndpointsOfANodeThatSpeaks(t *testing.T) {
	t.Parallel()
	b := newBrownOut(t)
	before := b.link.lists.Load()
	for range 50 {
		b.endpointTurns(false)
		b.endpointTurns(true)
	}
	b.endpointTurns(false)
	last := true
	for range 101 {
		last = b.next(t)
	}
	assert.False(t, last)
	assert.LessOrEqual(t, b.link.lists.Load()-before, int64(51), "a list for each time that an endpoint turned unready, at most")
}

// TestNodesThatCannotBeRead refuses lists of Nodes, and holds their events. An endpoint turns unready after attempts to read Nodes, and the
// next time without one.
func TestNodesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := newBrownOut(t)
	defer b.link.hold()()
	b.link.refuse.Store(true)
	b.link.lists.Store(0)
	b.endpointTurns(false)
	assert.False(t, b.next(t))
	lists := b.link.lists.Load()
	assert.Positive(t, lists, "no attempt to read Nodes")
	b.endpointTurns(true)
	assert.True(t, b.next(t))
	b.endpointTurns(false)
	assert.False(t, b.next(t))
	assert.Equal(t, lists, b.link.lists.Load(), "the endpoint waits for Nodes again")
}
