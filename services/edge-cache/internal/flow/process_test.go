package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"fairlead.dev/services/edge-cache/internal/app"
	"fairlead.dev/services/edge-cache/internal/config"
)

// Environment of this test binary as a process of the cache.
const (
	processConfig = "EDGE_CACHE_PROCESS_CONFIG"
	// processDisk is the size of a file system of its own for the data directory, for tests that fill it.
	processDisk = "EDGE_CACHE_PROCESS_DISK"
	// processHosts is a file that the process has as /etc/hosts.
	processHosts = "EDGE_CACHE_PROCESS_HOSTS"
)

// runProcess runs the cache until a signal.
func runProcess(file string) int {
	raw, err := os.ReadFile(file)
	cfg := config.Default()
	if err == nil {
		err = json.Unmarshal(raw, cfg)
	}
	if size := os.Getenv(processDisk); err == nil && size != "" {
		err = syscall.Mount("tmpfs", cfg.Data.Dir, "tmpfs", 0, "mode=0700,size="+size)
	}
	if hosts := os.Getenv(processHosts); err == nil && hosts != "" {
		err = syscall.Mount(hosts, "/etc/hosts", "", syscall.MS_BIND, "")
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		log := zap.NewNop()
		if os.Getenv("FAIRLEAD_TEST_LOG") != "" {
			log, _ = zap.NewDevelopment()
		}
		err = app.Run(ctx, cfg, log)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "edge-cache:", err)
		return 1
	}
	return 0
}

// process is a cache in a process of its own, which can be killed.
type process struct {
	*edge

	disk  string // see processDisk
	hosts string // see processHosts
	cmd   *exec.Cmd
}

// process prepares a cache. Each one has its own network.
func (w *world) process(pool string, configure ...func(*config.Config)) *process {
	w.t.Helper()
	own := *w
	own.network = newNetwork(w.t, w.network.target)
	e := own.prepare(pool, configure...)
	p := &process{edge: e}
	w.t.Cleanup(p.kill)
	return p
}

func (p *process) start() {
	p.t.Helper()
	raw, err := json.Marshal(p.cfg)
	require.NoError(p.t, err)
	file := filepath.Join(p.dir, "config.json")
	require.NoError(p.t, os.WriteFile(file, raw, 0o600))
	require.NoError(p.t, os.MkdirAll(p.cfg.Data.Dir, 0o700))
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), processConfig+"="+file, processDisk+"="+p.disk, processHosts+"="+p.hosts)
	p.cmd.Stderr = os.Stderr
	if p.disk != "" || p.hosts != "" {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
	}
	require.NoError(p.t, p.cmd.Start())
}

// kill ends the process as the kernel does when memory is short.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.cmd = nil
}

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

func version(t *testing.T, text string) uint64 {
	t.Helper()
	rv, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err)
	return rv
}

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
	w, err := p.client().DiscoveryV1().EndpointSlices("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0", AllowWatchBookmarks: true})
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

// kills is the number of kills: 100, or EDGE_CACHE_KILLS; a quarter in the short form.
func kills() int {
	if n, err := strconv.Atoi(os.Getenv("EDGE_CACHE_KILLS")); err == nil {
		return n
	}
	if testing.Short() {
		return 24
	}
	return 100
}

// TestKilledCacheLosesNothing kills the cache while events flow, a hundred times. It starts offline, and has everything that a client saw.
func TestKilledCacheLosesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	w.node("out-1", "other")
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	history := w.churn(ctx)
	const parallel = 4
	var group sync.WaitGroup
	events := make([]int, parallel)
	for n := range parallel {
		p := w.process("edge")
		group.Go(func() { events[n] = p.killRepeatedly(t, history, kills()/parallel, uint64(n)) })
	}
	group.Wait()
	cancel()
	history.mu.Lock()
	defer history.mu.Unlock()
	require.Greater(t, history.changes, kills(), "nothing changed")
	for _, n := range events {
		require.Greater(t, n, kills()/parallel, "the clients saw nothing")
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
	require.Eventually(t, func() bool { return position() > before }, patient, tick, "no event after a reconnection")
}

// TestStartWaitsForTheProcessBefore starts a cache while another one still has its directory. It serves when the other one has ended, and what that one has seen.
func TestStartWaitsForTheProcessBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	w.createSlice(slice("default", "a", "before", "in-1"))
	old := w.process("edge")
	old.start()
	old.ready()
	p := w.process("edge", func(c *config.Config) { c.Data.Dir = old.cfg.Data.Dir })
	p.network.set(linkCut)
	p.start()
	time.Sleep(time.Second)
	_, err := net.Dial("tcp", p.cfg.Client.Address)
	require.Error(t, err, "two caches serve from one directory")
	old.kill()
	p.ready()
	require.ElementsMatch(t, []string{"before", "kubernetes"}, names(ask(t, p.rest(), slicesPath, values("resourceVersion", "0"), "")))
}

// TestFullDiskOfTheCache fills the disk under a running cache. It serves, says that it is degraded, and repairs itself when there is room.
func TestFullDiskOfTheCache(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	w.createSlice(slice("default", "a", "a-1", "in-1"))
	p := w.process("edge")
	p.disk = "2m"
	p.start()
	p.ready()
	filler := fmt.Sprintf("/proc/%d/root%s/filler", p.cmd.Process.Pid, p.cfg.Data.Dir)
	f, err := os.Create(filler)
	if errors.Is(err, os.ErrPermission) {
		t.Skip("may not enter the mount namespace of a child")
	}
	require.NoError(t, err)
	_, err = f.Write(make([]byte, 4<<20))
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, f.Close())
	for i := range 100 {
		w.createSlice(slice("default", "b", fmt.Sprint("b-", i), "in-1", "in-1"))
	}
	informer := p.informer(clientKinds()[0], clientKinds()[0].make(t, p.rest()))
	synced(t, informer)
	p.converges(informer)
	require.Eventually(t, func() bool { return p.metric("fairlead_edgecache_journal_degraded") == 1 }, patient, tick)
	require.NoError(t, os.Remove(filler))
	require.Eventually(t, func() bool { return p.metric("fairlead_edgecache_journal_degraded") == 0 }, 45*time.Second, 100*time.Millisecond)
	p.converges(informer)
}
