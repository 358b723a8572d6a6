//go:build system

package hermetic

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// believed is what the debug page says of an endpoint: whether it is ejected.
func (r *rig) believed() map[string]bool {
	r.t.Helper()
	var page struct {
		Pools []struct {
			Endpoints []struct {
				Address string
				Ejected bool
			}
		}
	}
	require.NoError(r.t, json.Unmarshal([]byte(r.get(r.address("metrics-bind-address"), "/debug/pools.json")), &page))
	found := map[string]bool{}
	for _, e := range page.Pools[0].Endpoints {
		found[e.Address] = e.Ejected
	}
	return found
}

// Whatever the pool is, whoever is ejected and whatever the gateway allows: what is picked is a ready endpoint of the pool that
// is allowed, and not ejected if another is not; where nobody is allowed the request is refused. And however the exchange ends,
// nothing is counted in the end.
func TestPicksAreOfTheSubsetReadyAndOfThePool(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{1, 2, 3} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			pages := make([]string, 6)
			for i := range pages {
				pages[i] = pageOf(random.IntN(4), random.IntN(9), random.Float64(), "")
			}
			r := start(t, world{pages: pages, flags: []string{"--eject-after=1", "--ejection-time=1h", "--ejection-time-max=1h"}})
			refused, passedOver := 0, 0
			for range 5 {
				ready := r.shuffle(random)
				for range 12 {
					before := r.believed()
					q, allowed, healthy := r.draw(random, ready, before)
					s := r.ask(q)
					if len(allowed) == 0 {
						assert.Equal(t, 503, s.refused().status)
						refused++
						continue
					}
					require.Contains(t, allowed, s.picked())
					if healthy {
						require.False(t, before[s.picked()], "%s is ejected, and others are not: %v of %v", s.picked(), before, allowed)
						passedOver += ejectedOf(before, allowed)
					}
					s.endSomehow(random)
				}
			}
			assert.Positive(t, refused)
			assert.Positive(t, passedOver)
		})
	}
}

// ejectedOf counts those that are ejected.
func ejectedOf(ejected map[string]bool, addresses []string) int {
	n := 0
	for _, a := range addresses {
		if ejected[a] {
			n++
		}
	}
	return n
}

// shuffle gives every pod another state, and returns the addresses of those that may be picked when the picker knows.
func (r *rig) shuffle(random *rand.Rand) map[string]bool {
	r.t.Helper()
	ready := map[string]bool{}
	for i, s := range r.servers {
		ip := s.address.Addr().String()
		switch random.IntN(5) {
		case 0:
			r.api.put(r.t, pathPods, podName(i), podObject(ip, false, nil))
		case 1:
			r.api.put(r.t, pathPods, podName(i), podObject(ip, true, map[string]string{"app": "other"}))
		default:
			r.api.put(r.t, pathPods, podName(i), podObject(ip, true, nil))
			ready[r.at(i)] = true
		}
	}
	r.await(func() bool {
		known := r.believed()
		for address := range ready {
			if _, there := known[address]; !there {
				return false
			}
		}
		return len(known) == len(ready)
	}, "%v known", ready)
	return ready
}

// draw makes a request with a subset or without. It returns the endpoints that may be picked, and whether one of them is not
// ejected.
func (r *rig) draw(random *rand.Rand, ready, ejected map[string]bool) (q request, allowed []string, healthy bool) {
	q.body = ofModel
	if random.IntN(3) == 0 {
		q = request{path: "/v1/models"}
	}
	hinted := random.IntN(3) > 0
	entries := []string{"10.0.0.1:8000", "nonsense"}
	for i, s := range r.servers {
		if hinted && random.IntN(2) == 0 {
			continue
		}
		entries = append(entries, []string{r.at(i), s.address.Addr().String()}[random.IntN(2)])
		if ready[r.at(i)] {
			allowed = append(allowed, r.at(i))
			healthy = healthy || !ejected[r.at(i)]
		}
	}
	if hinted {
		q.subset = list(entries...)
	}
	return q, allowed, healthy
}

// endSomehow ends an exchange that was picked in one of the ways in which exchanges end.
func (s *stream) endSomehow(random *rand.Rand) {
	s.t.Helper()
	switch random.IntN(6) {
	case 0:
		s.cancel()
		<-s.done
	case 1:
		s.end()
	case 2:
		s.begin(response{pieces: []string{"x"}})
		s.piece("x", false)
		s.cancel()
		<-s.done
	case 3, 4:
		s.respond(response{status: 503, pieces: []string{"broken"}})
		s.end()
	default:
		s.respond(response{pieces: completion})
		s.end()
	}
}
