//go:build system || long

package flow

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/testlane"
)

// seen is what a client saw of a slice last.
type seen struct {
	rv      uint64
	count   int
	deleted bool
}

// client remembers every event that it gets.
type client struct {
	mu   sync.Mutex
	last uint64
	all  map[string]seen
}

const counter = "fairlead.dev/count"

func (c *client) apply(e watch.Event) {
	s, ok := e.Object.(*discoveryv1.EndpointSlice)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	rv, _ := strconv.ParseUint(s.ResourceVersion, 10, 64) // the comparison with the list fails for 0
	if e.Type == watch.Bookmark {
		c.last = max(c.last, rv)
		return
	}
	count, _ := strconv.Atoi(s.Annotations[counter])
	c.all[s.Name] = seen{rv: rv, count: count, deleted: e.Type == watch.Deleted}
	c.last = max(c.last, rv)
}

// watch follows the slices until the cache ends.
func (c *client) watch(t *testing.T, p *process) (done chan struct{}) {
	t.Helper()
	w, err := p.client().DiscoveryV1().EndpointSlices("default").Watch(t.Context(),
		metav1.ListOptions{ResourceVersion: "0", AllowWatchBookmarks: true})
	require.NoError(t, err)
	done = make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			c.apply(e)
		}
	}()
	return done
}

// requireNothingLost compares a list with what the client saw before.
func (c *client) requireNothingLost(t *testing.T, list *discoveryv1.EndpointSliceList, history *churn) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.GreaterOrEqual(t, version(t, list.ResourceVersion), c.last, "versions went back")
	now := map[string]seen{}
	for i := range list.Items {
		s := &list.Items[i]
		count, _ := strconv.Atoi(s.Annotations[counter])
		now[s.Name] = seen{rv: version(t, s.ResourceVersion), count: count}
	}
	for name, before := range c.all {
		after, exists := now[name]
		if before.deleted {
			require.True(t, !exists || after.rv > before.rv, "%s was deleted at %d, and is back at %d", name, before.rv, after.rv)
			continue
		}
		if !exists { // the kill was after the deletion was in the journal, and before the client heard of it
			require.Greater(t, history.deletion(name), before.count, "%s is lost", name)
			continue
		}
		require.GreaterOrEqual(t, after.rv, before.rv, name)
		require.GreaterOrEqual(t, after.count, before.count, name)
		require.False(t, after.rv == before.rv && after.count != before.count, "%s has two states at version %d", name, after.rv)
	}
}

// churn is what a loop of changes has done.
type churn struct {
	mu        sync.Mutex
	changes   int
	deletions map[string]int // the count at the last deletion of a slice that was tried
}

// deletion returns the count at the last deletion of a slice; -1 if there was none.
func (c *churn) deletion(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if count, deleted := c.deletions[name]; deleted {
		return count
	}
	return -1
}

func (c *churn) change(ctx context.Context, w *world, random *rand.Rand, count int) {
	api := w.direct.DiscoveryV1().EndpointSlices("default")
	name := fmt.Sprint("churn-", random.IntN(12))
	s := slice("default", "churn", name, "in-1", "out-1")
	s.Annotations = map[string]string{counter: strconv.Itoa(count)}
	var err error
	if random.IntN(10) == 0 {
		c.mu.Lock()
		c.deletions[name] = count // before the cache can hear of it
		c.mu.Unlock()
		err = api.Delete(ctx, name, metav1.DeleteOptions{})
	} else if _, err = api.Update(ctx, s, metav1.UpdateOptions{}); apierrors.IsNotFound(err) {
		_, err = api.Create(ctx, s, metav1.CreateOptions{})
	}
	if err == nil {
		c.mu.Lock()
		c.changes++
		c.mu.Unlock()
	}
}

// churn changes slices until ctx ends.
func (w *world) churn(ctx context.Context) *churn {
	c := &churn{deletions: map[string]int{}}
	var group sync.WaitGroup
	group.Go(func() {
		random := rand.New(rand.NewPCG(1, 1))
		for i := 0; ctx.Err() == nil; i++ {
			c.change(ctx, w, random, i)
			time.Sleep(5 * time.Millisecond)
		}
	})
	w.t.Cleanup(group.Wait)
	return c
}

// TestKilledCacheLosesNothing kills the cache while events flow, a thousand times in the long form. It starts offline, and has everything
// that a client saw.
func TestKilledCacheLosesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	w.node("out-1", "other")
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	history := w.churn(ctx)
	const parallel = 4
	kills := testlane.Repetitions(40, 1000)
	var group sync.WaitGroup
	events := make([]int, parallel)
	for n := range parallel {
		p := w.process("edge")
		group.Go(func() { events[n] = p.killRepeatedly(t, history, kills/parallel, uint64(n)) })
	}
	group.Wait()
	cancel()
	history.mu.Lock()
	defer history.mu.Unlock()
	require.Greater(t, history.changes, kills, "nothing changed")
	for _, n := range events {
		require.Greater(t, n, kills/parallel, "the clients saw nothing")
	}
}

// killRepeatedly returns the number of versions that the client saw go by.
func (p *process) killRepeatedly(t *testing.T, history *churn, times int, seed uint64) int {
	random := rand.New(rand.NewPCG(2, seed))
	c := &client{all: map[string]seen{}}
	saw := 0
	p.start()
	p.ready()
	for range times {
		done := c.watch(t, p)
		p.network.set(linkUp)
		p.awaitNews(t, c)
		time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
		p.kill()
		<-done
		p.network.set(linkCut)
		p.start()
		p.ready()
		list, err := p.client().DiscoveryV1().EndpointSlices("default").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		c.requireNothingLost(t, list, history)
		saw++
	}
	return saw + len(c.all)
}

// awaitNews waits until the client gets something new: the cache is connected.
func (p *process) awaitNews(t *testing.T, c *client) {
	t.Helper()
	position := func() uint64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.last
	}
	before := position()
	require.Eventually(t, func() bool { return position() > before }, kubetest.Patience, tick, "no event after a reconnection")
}
