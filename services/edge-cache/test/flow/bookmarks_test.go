//go:build long

package flow

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestIdleBookmarks keeps watches without events open. Each gets a bookmark within a minute, with and without the API server, whose version
// a client may continue from.
func TestIdleBookmarks(t *testing.T) {
	t.Parallel()
	w, offline := protocolWorld(t)
	other := *w
	other.network = newNetwork(t, strings.TrimPrefix(w.cluster.RESTConfig().Host, "https://"))
	online := other.edge("edge").ready()
	w.network.set(linkCut)
	var both sync.WaitGroup
	for name, e := range map[string]*edge{"online": online, "offline": offline} {
		events := stream(t, e.rest(), slicesPath, values(watchListQuery...))
		var rv uint64
		for initial := true; initial; {
			got := next(t, events)
			initial, rv = got.Type != "BOOKMARK", got.rv(t)
		}
		both.Go(func() {
			select {
			case got := <-events:
				assert.Equal(t, "BOOKMARK", got.Type, name)
				assert.GreaterOrEqual(t, got.rv(t), rv, name)
				q := values("watch", "true", "resourceVersion", got.Object.Metadata.ResourceVersion, "timeoutSeconds", "1")
				assert.Equal(t, http.StatusOK, ask(t, e.rest(), slicesPath, q, "").code, name)
			case <-time.After(time.Minute):
				assert.Fail(t, "no bookmark within a minute", name)
			}
		})
	}
	both.Wait()
}
