//go:build long

package flow

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/kubetest"
)

// TestSlowWatch reads a watch at one byte per second. It is ended, others do not notice, and the memory of the cache is bounded.
func TestSlowWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	nodes := make([]string, 100)
	for i := range nodes {
		nodes[i] = "in-1"
	}
	for i := range 60 {
		w.createSlice(slice("default", "a", fmt.Sprint("a-", i), nodes...))
	}
	p := w.process("edge")
	p.start()
	p.ready()
	fast := p.informer(clientKinds()[0], clientKinds()[0].make(t, p.rest()))
	synced(t, fast)
	p.converges(fast)
	before := p.metric("process_resident_memory_bytes")
	stop := p.readSlowly(t)
	ended := func() bool { return p.metric(`fairlead_edgecache_watches_ended_total{reason="slow"}`) == 1 }
	for i := 0; !ended(); i++ {
		require.Less(t, i, 2000, "the slow watch was not ended")
		name := fmt.Sprint("a-", i%60)
		changed := time.Now().Format(time.RFC3339Nano)
		_, err := w.direct.DiscoveryV1().EndpointSlices("default").Patch(t.Context(), name, "application/merge-patch+json",
			[]byte(`{"metadata":{"annotations":{"changed":"`+changed+`"}}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			o, _, err := fast.GetStore().GetByKey("default/" + name)
			return err == nil && o.(*discoveryv1.EndpointSlice).Annotations["changed"] == changed
		}, kubetest.Patience, 5*time.Millisecond, "another watch stands still, too")
		time.Sleep(40 * time.Millisecond)
	}
	stop()
	assert.Less(t, p.metric("process_resident_memory_bytes")-before, float64(64<<20))
	p.converges(fast)
}
