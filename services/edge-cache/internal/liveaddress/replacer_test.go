package liveaddress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// world is a store with slices, and the container runtime of a node.
type world struct {
	t        *testing.T
	replacer *Replacer

	mu    sync.Mutex
	pods  map[string]Pod
	err   error
	polls int

	store   sync.Mutex                            // as the store, which calls ReplaceAddresses with its lock
	slices  map[string]*discoveryv1.EndpointSlice // as the API server has them
	shown   map[string]*discoveryv1.EndpointSlice
	changes int // what clients saw change
}

func newWorld(t *testing.T, log *zap.Logger) *world {
	t.Helper()
	w := &world{
		t: t, pods: map[string]Pod{}, slices: map[string]*discoveryv1.EndpointSlice{}, shown: map[string]*discoveryv1.EndpointSlice{},
		replacer: New(Params{NodeName: "edge-1", Log: log}),
	}
	w.replacer.source = w
	return w
}

// ListPods implements source.
func (w *world) ListPods(context.Context) (map[string]Pod, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.polls++
	pods := map[string]Pod{}
	for uid, pod := range w.pods {
		pods[uid] = pod
	}
	return pods, w.err
}

func (w *world) run(uid string, addresses ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pod := Pod{Namespace: "default"}
	for _, a := range addresses {
		pod.Addresses = append(pod.Addresses, netip.MustParseAddr(a))
	}
	w.pods[uid] = pod
}

// ReprojectSlices implements Reprojector.
func (w *world) ReprojectSlices(keys ...string) {
	w.store.Lock()
	defer w.store.Unlock()
	for _, key := range keys {
		w.show(key)
	}
}

// ReprojectNode implements Reprojector.
func (w *world) ReprojectNode(name string) {
	require.Equal(w.t, "edge-1", name)
	w.store.Lock()
	defer w.store.Unlock()
	for key := range w.slices {
		w.show(key)
	}
}

// show replaces addresses of a slice. The caller has the lock of the store.
func (w *world) show(key string) {
	s := w.slices[key].DeepCopy()
	changed := w.replacer.ReplaceAddresses(key, s)
	require.Equal(w.t, changed, !same(s, w.slices[key]))
	if before := w.shown[key]; before != nil && !same(before, s) {
		w.changes++
	}
	w.shown[key] = s
}

func same(a, b *discoveryv1.EndpointSlice) bool { return reflect.DeepEqual(a.Endpoints, b.Endpoints) }

// set gives a slice endpoints: UID and address.
func (w *world) set(key string, endpoints ...[2]string) {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: key}, AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, e := range endpoints {
		node, ready := "edge-1", true
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{e[1]}, NodeName: &node, TargetRef: &corev1.ObjectReference{Kind: "Pod", UID: types.UID(e[0])},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready},
		})
	}
	w.store.Lock()
	defer w.store.Unlock()
	w.slices[key] = s
	w.show(key)
}

// change changes a slice of the API server before clients see it.
func (w *world) change(key string, change func(s *discoveryv1.EndpointSlice)) {
	w.store.Lock()
	defer w.store.Unlock()
	change(w.slices[key])
}

// changed returns the number of changes that clients saw.
func (w *world) changed() int {
	w.store.Lock()
	defer w.store.Unlock()
	return w.changes
}

func (w *world) requireShown(key string, want ...string) {
	w.t.Helper()
	w.store.Lock()
	defer w.store.Unlock()
	var got []string
	for _, e := range w.shown[key].Endpoints {
		got = append(got, e.Addresses...)
	}
	require.Equal(w.t, want, got)
}

// start runs the replacer in the bubble of the test.
func (w *world) start() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.replacer.Run(ctx, w)
	}()
	w.t.Cleanup(func() {
		cancel()
		<-done
	})
}

// settle is longer than two polls, and within the promise of 10 s.
func settle() { time.Sleep(2*pollInterval + time.Second) }

func TestAddressesAfterAReboot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.run("a", "10.0.0.1")
		w.set("web", [2]string{"a", "10.0.0.1"}, [2]string{"elsewhere", "10.0.1.9"})
		w.set("api", [2]string{"a", "10.0.0.1"})
		w.start()
		settle()
		require.Zero(t, w.changed())
		require.Zero(t, w.replacer.ReplacedAddresses())

		// The node reboots, the cloud is away: the pod is the same, its address is not.
		w.run("a", "10.0.0.7", "fd00::7")
		settle()
		w.requireShown("web", "10.0.0.7", "10.0.1.9")
		w.requireShown("api", "10.0.0.7")
		require.Equal(t, 2, w.changed(), "each slice changes once")
		require.Equal(t, 1, w.replacer.ReplacedAddresses())
		time.Sleep(time.Hour)
		require.Equal(t, 2, w.changed())

		// Another reboot, then the cloud is back and knows the address.
		w.run("a", "10.0.0.8")
		settle()
		w.requireShown("web", "10.0.0.8", "10.0.1.9")
		w.set("web", [2]string{"a", "10.0.0.8"}, [2]string{"elsewhere", "10.0.1.9"})
		w.set("api", [2]string{"a", "10.0.0.8"})
		require.Equal(t, 4, w.changed(), "what the cloud says is what clients have")
		require.Zero(t, w.replacer.ReplacedAddresses())
		require.Empty(t, w.replacer.staleBySlice)
	})
}

// TestStaticPods are in the API server as mirrors: the same name, another UID.
func TestStaticPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.run("of-the-manifest", "10.0.0.7")
		w.run("of-the-api", "10.0.0.8")
		w.mu.Lock()
		for uid, static := range map[string]bool{"of-the-manifest": true, "of-the-api": false} {
			pod := w.pods[uid]
			pod.Name, pod.Static = "pod-"+uid, static
			w.pods[uid] = pod
		}
		w.mu.Unlock()
		name := func(name string) func(s *discoveryv1.EndpointSlice) {
			return func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].TargetRef.Name = name }
		}
		for _, key := range []string{"mirror", "elsewhere", "tenant", "not-static"} {
			w.set(key, [2]string{"of-the-mirror", "10.0.0.1"})
			w.change(key, name("pod-of-the-manifest"))
		}
		w.change("elsewhere", func(s *discoveryv1.EndpointSlice) {
			other := "edge-2"
			s.Endpoints[0].NodeName = &other
		})
		w.change("tenant", func(s *discoveryv1.EndpointSlice) { s.Namespace = "tenant" })
		w.change("not-static", name("pod-of-the-api"))
		w.set("both", [2]string{"of-the-api", "10.0.0.1"}) // the UID counts more than the name
		w.change("both", name("pod-of-the-manifest"))
		w.start()
		settle()
		w.requireShown("mirror", "10.0.0.7")
		w.requireShown("elsewhere", "10.0.0.1")
		w.requireShown("tenant", "10.0.0.1")
		w.requireShown("not-static", "10.0.0.1")
		w.requireShown("both", "10.0.0.8")
		require.Equal(t, 2, w.replacer.ReplacedAddresses())
		changes := w.changed()

		w.mu.Lock() // the manifest is gone
		delete(w.pods, "of-the-manifest")
		w.mu.Unlock()
		settle()
		w.requireShown("mirror", "10.0.0.1")
		w.requireShown("both", "10.0.0.8")
		require.Equal(t, changes+1, w.changed())
	})
}

// TestStartAfterAReboot starts with slices from the journal, and pods that start meanwhile.
func TestStartAfterAReboot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.set("web", [2]string{"a", "10.0.0.1"}, [2]string{"b", "10.0.0.2"})
		w.start()
		settle()
		w.requireShown("web", "10.0.0.1", "10.0.0.2")
		w.run("a", "10.0.0.2") // the address that the other one had
		settle()
		w.requireShown("web", "10.0.0.2", "10.0.0.2")
		w.run("b", "10.0.0.1")
		settle()
		w.requireShown("web", "10.0.0.2", "10.0.0.1")
	})
}

// TestSliceThatIsNewerThanTheAnswer keeps the address of the API server until the runtime was asked again.
func TestSliceThatIsNewerThanTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.run("a", "10.0.0.1")
		w.set("web", [2]string{"a", "10.0.0.1"})
		w.start()
		settle()
		w.run("a", "10.0.0.5")
		w.set("web", [2]string{"a", "10.0.0.5"}) // before the next poll
		settle()
		w.requireShown("web", "10.0.0.5")
		require.Equal(t, 1, w.changed())
	})
}

// TestBehindYurthub gets slices whose addresses are live already: nothing is replaced, whatever the node does.
func TestBehindYurthub(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.run("a", "10.0.0.1")
		w.set("web", [2]string{"a", "10.0.0.1"})
		w.start()
		for i := range 5 {
			address := fmt.Sprintf("10.0.0.%d", 10+i)
			w.run("a", address)
			w.set("web", [2]string{"a", address}) // later: it would be replaced by the address before
			settle()
			w.requireShown("web", address)
			require.Equal(t, i+1, w.changed())
			require.Zero(t, w.replacer.ReplacedAddresses())
		}
	})
}

func TestWhatIsNeverReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.run("a", "10.0.0.7")
		w.run("six", "fd00::7")
		w.set("other-family", [2]string{"six", "10.0.0.1"})
		w.set("other-namespace", [2]string{"a", "10.0.0.1"})
		w.change("other-namespace", func(s *discoveryv1.EndpointSlice) { s.Namespace = "tenant" })
		w.set("no-pod", [2]string{"a", "10.0.0.1"})
		w.change("no-pod", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].TargetRef.Kind = "VirtualMachine" })
		w.set("no-reference", [2]string{"a", "10.0.0.1"})
		w.change("no-reference", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].TargetRef = nil })
		w.set("name", [2]string{"a", "example.com"})
		w.change("name", func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeFQDN })
		w.set("no-address", [2]string{"a", "10.0.0.1"})
		w.change("no-address", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = nil })
		w.start()
		settle()
		w.ReprojectNode("edge-1")
		settle()
		require.Zero(t, w.replacer.ReplacedAddresses())
		w.store.Lock()
		defer w.store.Unlock()
		for key := range w.slices {
			require.True(t, same(w.slices[key], w.shown[key]), key)
		}
	})
}

func TestRuntimeThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		w := newWorld(t, zap.New(core))
		w.run("a", "10.0.0.7")
		w.set("web", [2]string{"a", "10.0.0.1"})
		w.start()
		settle()
		w.requireShown("web", "10.0.0.7")
		w.mu.Lock()
		w.err = errors.New("connection refused")
		w.mu.Unlock()
		time.Sleep(time.Hour)
		w.requireShown("web", "10.0.0.7")
		require.Equal(t, 1, logs.FilterMessageSnippet("not available").Len(), "once, not every two seconds")
		w.mu.Lock()
		w.err = nil
		w.mu.Unlock()
		settle()
		require.Equal(t, 1, logs.FilterMessage("Live addresses are available again").Len())
	})
}

// TestDeletedSlices leave nothing behind.
func TestDeletedSlices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.run("a", "10.0.0.7")
		for i := range 50 {
			w.set(fmt.Sprint(i), [2]string{"a", "10.0.0.1"})
		}
		w.start()
		settle()
		require.Equal(t, 1, w.replacer.ReplacedAddresses())
		w.replacer.mu.Lock()
		require.Len(t, w.replacer.staleBySlice, 50)
		w.replacer.mu.Unlock()
		for i := range 50 {
			w.replacer.ForgetSlice(fmt.Sprint(i))
		}
		require.Zero(t, w.replacer.ReplacedAddresses())
		require.Empty(t, w.replacer.slicesByStale)
		require.Empty(t, w.replacer.staleBySlice)
	})
}

func TestMismatchesAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.run("a", "10.0.0.7")
	w.replacer.setPods(w.pods)
	var endpoints [][2]string
	for i := range 1000 {
		endpoints = append(endpoints, [2]string{"a", fmt.Sprintf("10.1.%d.%d", i/250, i%250)})
	}
	for i := range 12 {
		for j := range endpoints {
			endpoints[j][1] = fmt.Sprintf("10.%d.%d.%d", i+1, j/250, j%250)
		}
		w.set(fmt.Sprint(i), endpoints...)
	}
	require.Len(t, w.replacer.slicesByStale, maxMismatches)
}
