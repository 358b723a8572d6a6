//go:build system

package hermetic

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/test/envoytest"
)

// sharing runs a picker with the addresses of these replicas, of which it is the first.
func (r *rig) sharing(addresses ...string) *rig {
	r.t.Helper()
	other := &rig{t: r.t, api: r.api, servers: r.servers, file: r.file, flags: slices.Concat(r.flags, sharing(addresses...))}
	other.launch()
	other.await(func() bool { return other.get(other.health(), "/readyz") == "ok\n" }, "ready")
	other.scraped()
	other.t.Cleanup(other.settle)
	return other
}

func sharing(addresses ...string) []string {
	return []string{"--replica-bind-address=" + addresses[0], "--replica-addresses=" + strings.Join(addresses, ",")}
}

// blocks returns how many blocks the picker believes to be in all caches.
func (r *rig) blocks() float64 { return r.metrics().sum("fairlead_picker_prefix_index_blocks") }

// byRequests chooses the server with the fewest open requests, however slow the machine makes a server look.
const byRequests = `
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: active-request-scorer
- type: prefix-cache-scorer
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: active-request-scorer, weight: 10}
  - {pluginRef: prefix-cache-scorer}
`

// Replicas know each other's requests, although no metrics page shows any, and a new one knows what the caches contain.
func TestReplicasShareTheirRequests(t *testing.T) {
	t.Parallel()
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			addresses := make([]string, 3)
			for i := range addresses {
				addresses[i] = newHost().String() + ":9004"
			}
			a := start(t, world{
				mode: m, pages: []string{pageOf(0, 0, 0, ""), pageOf(0, 0, 0, ""), pageOf(0, 0, 0, "")}, config: byRequests,
				flags: append(sharing(addresses...), "--explain"),
			})
			b := a.sharing(addresses[1], addresses[0], addresses[2])
			for _, r := range []*rig{a, b} {
				r.await(func() bool { return r.metrics().sum("fairlead_picker_replicas_heard") == 1 }, "it hears the other one")
			}

			// Open requests are load, whoever placed them.
			var open []*stream
			used := map[string]int{}
			for i := range 6 {
				from := []*rig{a, b}[i%2]
				from.await(func() bool {
					return from.metrics().sum("fairlead_picker_replica_events_total", "direction", "received") >= float64(2*(i-i/2))
				}, "it has heard of all")
				s := from.ask(request{body: fmt.Sprintf(`{"model": "m", "prompt": [%s]}`, ids(1000*i, 200)), rules: envoytest.Rules{Reply: []string{explained}}})
				used[s.picked()]++
				open = append(open, s)
			}
			assert.Equal(t, map[string]int{a.at(0): 2, a.at(1): 2, a.at(2): 2}, used)
			assert.InDelta(t, 3, a.metrics().sum("fairlead_picker_endpoint_requests_in_flight"), 0, "its own")
			for _, s := range open {
				s.respond(response{pieces: completion})
				s.end()
			}

			// So are prompts.
			prompt := ids(50_000, 500)
			assert.Equal(t, "0/500", a.cached(1, prompt))
			b.await(func() bool { return b.blocks() == a.blocks() }, "it knows the same")
			assert.Equal(t, "496/500", b.cached(1, prompt))
			a.stop()
			<-a.stopped
			c := b.sharing(addresses[2], addresses[0], addresses[1])
			assert.Equal(t, "496/500", c.cached(1, prompt))
		})
	}
}

// A picker of any form of pools is ready when it knows what the caches contain, or when no other replica tells it.
func TestReplicasAreWarmWhenTheyAreReady(t *testing.T) {
	t.Parallel()
	const cold = "waiting for the contents of caches from another replica"
	for name, which := range map[string][]string{
		"all": ofService(), "names": {"--pool=ns/" + poolName(0), "--pool=ns/" + poolName(1)}, "one": {"--pool-name=" + poolName(0)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addresses := []string{newHost().String() + ":9004", newHost().String() + ":9004", newHost().String() + ":9004"}
			silent, err := net.Listen("tcp", addresses[2])
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, silent.Close()) })
			p := buildSeveral(t, 2, 0, 1)
			p.flags = append(p.flags, which...)

			// Another replica accepts connections and tells nothing, for as long as anybody waits.
			p.flags = append(p.flags, sharing(addresses[0], addresses[2])...)
			p.launch()
			t.Cleanup(p.settle)
			ready := func(r *rig) string { return r.get(r.health(), "/readyz") }
			p.await(func() bool { return strings.Contains(ready(p.rig), cold) }, "cold")
			p.await(func() bool { return ready(p.rig) == "ok\n" }, "ready without its contents")

			// A third one hears from the first.
			prompt := ids(50_000, 500)
			gateway := p.gatewayOf(0)
			gateway.serve(request{body: fmt.Sprintf(`{"model": "m", "prompt": [%s]}`, prompt)}, response{pieces: completion})
			other := &rig{t: t, api: p.api, servers: p.servers, flags: slices.Concat(p.flags, sharing(addresses[1], addresses[0]))}
			other.launch()
			t.Cleanup(other.settle)
			other.await(func() bool { return ready(other) == "ok\n" }, "ready")
			assert.Positive(t, other.blocks(), "it knows the caches as soon as it is ready")
			assert.InDelta(t, p.blocks(), other.blocks(), 0)
		})
	}
}
