package ocilb_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
)

// world is a load balancer with a listener, and a network.
type world struct {
	*ocilbtest.Service

	network *ocilbtest.Network
	client  *http.Client

	backends map[int]*ocilbtest.Server // of tests of sessions
}

// newWorld returns a world for a bubble, with the backend sets chat and embed and a listener at port 80 whose default is chat.
func newWorld(t *testing.T, change func(o *ocilb.Options)) *world {
	t.Helper()
	w := &world{network: ocilbtest.NewNetwork()}
	o := quick()
	o.Plane.Dial, o.Plane.Listen = w.network.Dial, w.network.Listen
	if change != nil {
		change(&o)
	}
	w.Service = start(t, o)
	w.client = w.network.Client(t)
	w.edit(t, func(lb *ocilb.LoadBalancer) {
		for _, name := range []string{"chat", "embed"} {
			lb.BackendSets[name] = &ocilb.BackendSet{
				Name: name, Policy: "ROUND_ROBIN", Backends: []ocilb.Backend{}, HealthChecker: ocilb.HealthChecker{
					Protocol: "HTTP", URLPath: "/health", ReturnCode: 200, Retries: 3, TimeoutInMillis: 3000, IntervalInMillis: 10_000, ResponseBodyRegex: ".*",
				},
			}
		}
		lb.Listeners["web"] = &ocilb.Listener{
			Name: "web", DefaultBackendSetName: "chat", Port: 80, Protocol: "HTTP", ConnectionConfiguration: &ocilb.ConnectionConfiguration{IdleTimeout: 60},
		}
	})
	return w
}

func (w *world) edit(t *testing.T, change func(lb *ocilb.LoadBalancer)) {
	t.Helper()
	err := w.Edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
		change(lb)
		return nil
	})
	require.Nil(t, err)
}

// set replaces the backends of a set at once.
func (w *world) set(t *testing.T, name string, backends ...ocilb.Backend) {
	t.Helper()
	w.edit(t, func(lb *ocilb.LoadBalancer) {
		s := *lb.BackendSets[name]
		s.Backends = backends
		lb.BackendSets[name] = &s
	})
}

// backend returns the i-th backend.
func backend(i int) ocilb.Backend {
	ip := fmt.Sprintf("10.0.0.%d", i)
	return ocilb.Backend{Name: ip + ":8080", IPAddress: ip, Port: 8080, Weight: 1}
}

// serve starts the i-th backend. Its answers have its number; "/slow" answers in pieces for ten seconds.
func (w *world) serve(t *testing.T, i int) *ocilbtest.Server {
	t.Helper()
	return w.network.Serve(t, backend(i).Name, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/slow" {
			fmt.Fprint(rw, i)
			return
		}
		for range 10 {
			fmt.Fprint(rw, i)
			_ = http.NewResponseController(rw).Flush()
			select {
			case <-time.After(time.Second):
			case <-r.Context().Done():
				return
			}
		}
	}))
}

// get sends a request to the listener, and returns the status and the body.
func (w *world) get(t *testing.T, path string, change func(r *http.Request)) (status int, body string, err error) {
	t.Helper()
	response, body, err := w.send(t, http.MethodGet, path, change)
	if response == nil {
		return 0, "", err
	}
	return response.StatusCode, body, err
}

// response sends a request to the listener that must be answered.
func (w *world) response(t *testing.T, method, path string, change func(r *http.Request)) (response *http.Response, body string) {
	t.Helper()
	response, body, err := w.send(t, method, path, change)
	require.NoError(t, err)
	return response, body
}

func (w *world) send(t *testing.T, method, path string, change func(r *http.Request)) (response *http.Response, body string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+ocilbtest.Address+":80"+path, http.NoBody)
	require.NoError(t, err)
	if change != nil {
		change(r)
	}
	response, err = w.client.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response, string(text), err
}

// answers counts the answers of backends to n requests.
func (w *world) answers(t *testing.T, n int) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for range n {
		status, body, err := w.get(t, "/", nil)
		require.NoError(t, err)
		if status != http.StatusOK {
			body = http.StatusText(status)
		}
		counts[body]++
	}
	return counts
}

func TestTrafficGoesToHealthyBackendsByTheirWeights(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		assert.Equal(t, map[string]int{"Bad Gateway": 1}, w.answers(t, 1), "without backends")
		for i := range 5 {
			w.serve(t, i+1)
		}
		heavy, drained, offline, backup, dead := backend(2), backend(3), backend(4), backend(5), backend(6)
		heavy.Weight, drained.Drain, offline.Offline, backup.Backup = 3, true, true, true
		w.set(t, "chat", backend(1), heavy, drained, offline, backup, dead)
		time.Sleep(time.Minute)
		assert.Equal(t, map[string]int{"1": 10, "2": 30}, w.answers(t, 40))
		w.set(t, "chat", drained, backup)
		time.Sleep(time.Minute)
		assert.Equal(t, map[string]int{"5": 3}, w.answers(t, 3), "backups stand in")
	})
}

func TestHealthOfBackends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		first := w.serve(t, 1)
		w.set(t, "chat", backend(1), backend(2))
		time.Sleep(time.Minute)
		assert.Equal(t, map[string]int{"1": 4}, w.answers(t, 4))
		first.Kill()
		time.Sleep(time.Minute)
		assert.Equal(t, map[string]int{"Bad Gateway": 1}, w.answers(t, 1))
		w.serve(t, 2)
		time.Sleep(11 * time.Second)
		assert.Equal(t, map[string]int{"2": 1}, w.answers(t, 1))
	})
}

// TestPathsOfHealthChecks may lack the slash, as in the acceptance tests of Terraform's provider.
func TestPathsOfHealthChecks(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/health", "health"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, nil)
			w.edit(t, func(lb *ocilb.LoadBalancer) {
				s := *lb.BackendSets["chat"]
				s.HealthChecker.URLPath = path
				lb.BackendSets["chat"] = &s
			})
			w.network.Serve(t, backend(1).Name, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/health" && r.URL.Path != "/" {
					rw.WriteHeader(http.StatusNotFound)
				}
			}))
			w.set(t, "chat", backend(1))
			time.Sleep(time.Minute)
			status, _, err := w.get(t, "/", nil)
			require.NoError(t, err)
			assert.Equal(t, http.StatusOK, status, path)
		})
	}
}

func TestNewBackendsTakeTrafficAtOnceOrAfterACheck(t *testing.T) {
	t.Parallel()
	for atOnce, want := range map[bool]string{true: "Bad Gateway", false: "1"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, func(o *ocilb.Options) { o.Plane.AdmitUnchecked = atOnce })
				w.serve(t, 1)
				w.set(t, "chat", backend(1))
				time.Sleep(time.Minute)
				w.set(t, "chat", backend(2), backend(1)) // 2 does not serve yet
				assert.Equal(t, map[string]int{want: 1}, w.answers(t, 1))
			})
		})
	}
}

func TestRequestsInFlightOfARemovedBackend(t *testing.T) {
	t.Parallel()
	for cut, name := range map[bool]string{true: "cut", false: "spared"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, func(o *ocilb.Options) { o.Plane.CutRemoved = cut })
				w.serve(t, 1)
				w.set(t, "chat", backend(1))
				time.Sleep(time.Minute)
				time.AfterFunc(5*time.Second, func() { w.set(t, "chat") })
				_, body, err := w.get(t, "/slow", nil)
				if cut {
					require.Error(t, err)
					assert.Less(t, len(body), 10)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, strings.Repeat("1", 10), body)
			})
		})
	}
}

func TestDrainedBackendsFinishTheirRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.serve(t, 1)
		w.set(t, "chat", backend(1))
		time.Sleep(time.Minute)
		time.AfterFunc(5*time.Second, func() {
			drained := backend(1)
			drained.Drain = true
			w.set(t, "chat", drained)
		})
		_, body, err := w.get(t, "/slow", nil)
		require.NoError(t, err)
		assert.Len(t, body, 10)
		assert.Equal(t, map[string]int{"Bad Gateway": 1}, w.answers(t, 1))
	})
}

func TestAChangeOfThePolicyCutsRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *ocilb.Options) { o.Plane.CutRemoved = false })
		w.serve(t, 1)
		w.set(t, "chat", backend(1))
		time.Sleep(time.Minute)
		time.AfterFunc(5*time.Second, func() {
			w.edit(t, func(lb *ocilb.LoadBalancer) {
				s := *lb.BackendSets["chat"]
				s.Policy = "LEAST_CONNECTIONS"
				lb.BackendSets["chat"] = &s
			})
		})
		_, _, err := w.get(t, "/slow", nil)
		require.Error(t, err)
	})
}

func TestRoutingPolicies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.serve(t, 1)
		w.serve(t, 2)
		w.set(t, "chat", backend(1))
		w.set(t, "embed", backend(2))
		w.edit(t, func(lb *ocilb.LoadBalancer) {
			lb.RoutingPolicies["policy"] = &ocilb.RoutingPolicy{Name: "policy", ConditionLanguageVersion: "V1", Rules: []ocilb.RoutingRule{{
				Name: "embeddings", Condition: "all(http.request.url.path sw '/v1/embeddings', http.request.headers[(i 'x-team')] eq (i 'A'))",
				Actions: []ocilb.Action{{Name: "FORWARD_TO_BACKENDSET", BackendSetName: "embed"}},
			}}}
			l, policy := *lb.Listeners["web"], "policy"
			l.RoutingPolicyName = &policy
			lb.Listeners["web"] = &l
		})
		time.Sleep(time.Minute)
		_, body, err := w.get(t, "/v1/embeddings", func(r *http.Request) { r.Header.Set("X-Team", "a") })
		require.NoError(t, err)
		assert.Equal(t, "2", body)
		_, body, err = w.get(t, "/v1/embeddings", nil)
		require.NoError(t, err)
		assert.Equal(t, "1", body)
	})
}

func TestIdleTimeoutOfTheListener(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.network.Serve(t, backend(1).Name, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/health" {
				return
			}
			select {
			case <-time.After(2 * time.Minute): // the first token of a long prompt
			case <-r.Context().Done():
			}
		}))
		w.set(t, "chat", backend(1))
		begun := time.Now()
		status, _, err := w.get(t, "/", nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusGatewayTimeout, status)
		assert.Equal(t, time.Minute, time.Since(begun).Truncate(time.Second))
	})
}

// A server that closes an idle connection while the load balancer sends a request on it makes the request fail: nobody repeats it.
func TestRequestsAreNotRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		tries := 0
		w.network.Serve(t, backend(1).Name, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/fails" {
				tries++
				panic(http.ErrAbortHandler)
			}
		}))
		w.set(t, "chat", backend(1))
		time.Sleep(time.Minute)
		require.Equal(t, map[string]int{"": 1}, w.answers(t, 1), "the connection is kept")
		status, _, err := w.get(t, "/fails", nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusBadGateway, status)
		assert.Equal(t, 1, tries)
	})
}
