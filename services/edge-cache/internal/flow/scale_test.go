package flow

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// size is the size of a cluster.
type size struct{ slices, endpoints, nodes, pool int }

// TestScale measures a cache of a large cluster, in a process of its own, beside the API server. With FAIRLEAD_BENCH=1 the cluster has
// 10 000 slices of 100 endpoints, and the goals are checked.
func TestScale(t *testing.T) {
	n := size{slices: 300, endpoints: 100, nodes: 500, pool: 50}
	full := os.Getenv("FAIRLEAD_BENCH") != ""
	if full {
		n = size{slices: 10_000, endpoints: 100, nodes: 5000, pool: 50}
		if text := os.Getenv("FAIRLEAD_BENCH_SLICES"); text != "" {
			n.slices, _ = strconv.Atoi(text)
		}
	}
	w := newWorld(t)
	w.fill(n)
	backup := filepath.Join(t.TempDir(), "snapshot.db")
	require.NoError(t, w.cluster.Snapshot(t.Context(), backup))
	p := w.prepare("edge").measured(buildCache(t))
	report := p.measure(n, backup)
	t.Log("\n" + report.String())
	if !full {
		return
	}
	assert.Less(t, report.steady(), 150.0, "MB steady")
	assert.Less(t, report.peak, 300.0, "MB in sync and relist")
	assert.Less(t, report.move, 50*time.Millisecond, "move of one node, without the wait for more changes")
	assert.Less(t, report.offlineStart, 2*time.Second, "cold offline start to the first list")
}

// fill creates nodes and slices.
func (w *world) fill(n size) {
	w.t.Helper()
	w.parallel(n.nodes, func(ctx context.Context, i int) error {
		pool := "cloud"
		if i < n.pool {
			pool = "edge"
		}
		_, err := w.direct.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{poolKey: pool}}}, metav1.CreateOptions{})
		return err
	})
	w.parallel(n.slices, func(ctx context.Context, i int) error {
		_, err := w.direct.DiscoveryV1().EndpointSlices("default").Create(ctx, n.slice(i, 0), metav1.CreateOptions{})
		return err
	})
}

// rollOut replaces every pod of every slice.
func (w *world) rollOut(n size) {
	w.t.Helper()
	w.parallel(n.slices, func(ctx context.Context, i int) error {
		_, err := w.direct.DiscoveryV1().EndpointSlices("default").Update(ctx, n.slice(i, 1), metav1.UpdateOptions{})
		return err
	})
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d.example.internal", i) }

// slice returns a slice whose endpoints look like those of real pods: spread over all nodes, with addresses of their nodes, random names and random UIDs.
func (n size) slice(i int, generation uint64) *discoveryv1.EndpointSlice {
	r := rand.New(rand.NewPCG(uint64(i), generation))
	s := slice("default", fmt.Sprintf("service-%d", i), fmt.Sprintf("service-%d-abcde", i))
	for range n.endpoints {
		node := r.IntN(n.nodes)
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", node>>8, node&255, 2+r.IntN(250))},
			Conditions: discoveryv1.EndpointConditions{Ready: pointer(true), Serving: pointer(true), Terminating: pointer(false)},
			NodeName:   pointer(nodeName(node)), Zone: pointer("zone-a"),
			TargetRef: &corev1.ObjectReference{
				Kind: "Pod", Namespace: "default", Name: fmt.Sprintf("service-%d-7c9d8f6b5%d-%s", i, i%10, randomName(r)),
				UID: types.UID(fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", r.Uint32(), r.IntN(1<<16), r.IntN(1<<12), 0x8000|r.IntN(1<<14), r.Uint64N(1<<48))),
			},
		})
	}
	return s
}

// randomName returns the random part of the name of a pod.
func randomName(r *rand.Rand) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	name := make([]byte, 5)
	for i := range name {
		name[i] = letters[r.IntN(len(letters))]
	}
	return string(name)
}

func (w *world) parallel(n int, do func(ctx context.Context, i int) error) {
	w.t.Helper()
	var all sync.WaitGroup
	next, failed := make(chan int), make(chan error, n)
	for range 16 {
		all.Go(func() {
			for i := range next {
				if err := do(w.t.Context(), i); err != nil {
					failed <- err
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
	close(failed)
	require.NoError(w.t, <-failed)
}

func buildCache(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "edge-cache")
	out, err := exec.Command("go", "build", "-o", binary, "../..").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}

// measured is a cache in a process of its own.
type measured struct {
	*edge

	binary string
	cmd    *exec.Cmd
}

func (e *edge) measured(binary string) *measured {
	p := &measured{edge: e, binary: binary}
	p.launch()
	e.t.Cleanup(p.kill)
	return p
}

func (p *measured) launch() {
	p.t.Helper()
	c := p.cfg
	p.cmd = exec.Command(p.binary, "--pool="+c.Pool.Name, "--kubeconfig="+c.Upstream.Kubeconfig, "--listen-address="+c.Client.Address,
		"--credentials-dir="+c.Client.CredentialsDir, "--namespace-file="+c.Client.NamespaceFile, "--data-dir="+c.Data.Dir,
		"--health-probe-bind-address="+c.HTTP.HealthAddress, "--metrics-bind-address="+c.HTTP.MetricsAddress)
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(p.t, p.cmd.Start())
}

func (p *measured) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// memory returns a line of /proc/<pid>/status in MB.
func (p *measured) memory(name string) float64 {
	p.t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	require.NoError(p.t, err)
	for line := range strings.Lines(string(raw)) {
		if rest, found := strings.CutPrefix(line, name+":"); found {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			require.NoError(p.t, err)
			return float64(kb) / 1000
		}
	}
	return 0
}

// sum returns the sum of a metric, over the series whose labels contain a text.
func (p *measured) sum(name, labels string) float64 {
	p.t.Helper()
	response, err := http.Get("http://" + p.cfg.HTTP.MetricsAddress + "/metrics")
	require.NoError(p.t, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	require.NoError(p.t, err)
	sum := 0.0
	for line := range strings.Lines(string(raw)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if found, rest, _ := strings.Cut(series, "{"); found == name && strings.Contains(rest, labels) {
			v, err := strconv.ParseFloat(value, 64)
			require.NoError(p.t, err)
			sum += v
		}
	}
	return sum
}

// scaleReport is what TestScale measures. Memory is in MB.
type scaleReport struct {
	size                                             size
	sync, offlineStart, move                         time.Duration
	afterSync, afterMoves, afterRollOut, afterRelist float64
	afterStart                                       float64
	files                                            float64 // pages of the program itself
	syncPeak, peak                                   float64
	wire, decoded                                    float64
	moveSeen                                         time.Duration
	moved                                            int
	cacheList, serverList                            time.Duration
	cacheBytes, serverBytes                          int
}

// steady returns the largest memory that the cache had when it had nothing to do.
func (r scaleReport) steady() float64 {
	return max(r.afterSync, r.afterMoves, r.afterRollOut, r.afterRelist, r.afterStart)
}

func (r scaleReport) String() string {
	return fmt.Sprintf(`%d slices x %d endpoints, pool of %d of %d nodes         edge-cache   direct
first sync                                        %12s
bytes from the API server, gzip / decompressed    %9.1f MB  %7.1f MB
RSS after sync / moves of a node / a roll-out of all pods / relist / offline start
                                                  %.0f / %.0f / %.0f / %.0f / %.0f MB (%.0f MB of it are pages of the program)
RSS peak in sync / with a roll-out and a relist in which every slice differs
                                                  %.0f / %.0f MB
one node joins: projection / until the client sees %6s / %s (%d slices)
list of slices, protobuf                          %12s  %8s
size of that list                                 %9.1f MB  %7.1f MB
cold offline start to first list                  %12s`,
		r.size.slices, r.size.endpoints, r.size.pool, r.size.nodes, r.sync.Round(time.Millisecond), r.wire/1e6, r.decoded/1e6,
		r.afterSync, r.afterMoves, r.afterRollOut, r.afterRelist, r.afterStart, r.files, r.syncPeak, r.peak,
		r.move.Round(10*time.Microsecond), r.moveSeen.Round(time.Millisecond), r.moved,
		r.cacheList.Round(time.Millisecond), r.serverList.Round(time.Millisecond), float64(r.cacheBytes)/1e6, float64(r.serverBytes)/1e6,
		r.offlineStart.Round(time.Millisecond))
}

// settle is the time after which memory counts as steady.
const settle = 3 * time.Second

func (p *measured) measure(n size, backup string) scaleReport {
	p.t.Helper()
	r := scaleReport{size: n}
	begin := time.Now()
	p.listed(2 * time.Minute)
	r.sync = time.Since(begin)
	time.Sleep(settle)
	r.afterSync, r.syncPeak, r.files = p.memory("VmRSS"), p.memory("VmHWM"), p.memory("RssFile")
	r.wire = p.sum("fairlead_edgecache_upstream_received_bytes_total", `kind="wire"`)
	r.decoded = p.sum("fairlead_edgecache_upstream_received_bytes_total", `kind="decoded"`)
	p.logMemory("sync")

	r.cacheList, r.cacheBytes = fetchList(p.t, p.rest())
	r.serverList, r.serverBytes = fetchList(p.t, p.cluster.RESTConfig())
	p.measureMove(n, &r)
	r.afterMoves = p.memory("VmRSS")

	p.rollOut(n)
	time.Sleep(settle)
	r.afterRollOut = p.memory("VmRSS")
	p.relist(backup)
	time.Sleep(settle)
	r.afterRelist, r.peak = p.memory("VmRSS"), p.memory("VmHWM")
	p.logMemory("relist")

	p.network.set(linkCut)
	p.kill()
	begin = time.Now()
	p.launch()
	p.listed(time.Minute)
	r.offlineStart = time.Since(begin)
	time.Sleep(settle)
	r.afterStart, r.peak = p.memory("VmRSS"), max(r.peak, p.memory("VmHWM"))
	return r
}

// relist restores the backup of the cluster: the cache must list everything again, and every slice differs from what it has.
func (p *measured) relist(backup string) {
	p.t.Helper()
	position := func() float64 {
		return p.sum("fairlead_edgecache_store_resource_version", `store="discovery.k8s.io/v1/endpointslices"`)
	}
	before := position()
	require.NotZero(p.t, before)
	require.NoError(p.t, p.cluster.Restore(p.t.Context(), backup))
	require.Eventually(p.t, func() bool { return position() < before }, 2*time.Minute, 100*time.Millisecond, "the cache did not list again")
}

func (p *measured) logMemory(after string) {
	p.t.Helper()
	mb := func(metric string) float64 { return p.sum(metric, "") / 1e6 }
	p.t.Logf("after the %s: stored %.1f MB; heap: allocated %.1f MB, in use %.1f MB, from the system %.1f MB, released %.1f MB", after,
		mb("fairlead_edgecache_store_bytes"), mb("go_memstats_heap_alloc_bytes"), mb("go_memstats_heap_inuse_bytes"), mb("go_memstats_heap_sys_bytes"),
		mb("go_memstats_heap_released_bytes"))
}

// measureMove moves a node into the pool and waits until an informer has seen each of its slices.
func (p *measured) measureMove(n size, r *scaleReport) {
	p.t.Helper()
	mover := nodeName(n.pool + 1)
	updates := make(chan struct{}, 100_000)
	i := p.informer(clientKinds()[0], clientKinds()[0].make(p.t, p.rest()))
	_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(any, any) { updates <- struct{}{} }})
	require.NoError(p.t, err)
	require.Eventually(p.t, i.HasSynced, time.Minute, tick)
	for range 3 { // the first run decompresses with cold caches
		before := p.sum("fairlead_edgecache_refilter_duration_seconds_sum", "")
		affected := p.sum("fairlead_edgecache_refiltered_objects_total", "")
		begin := time.Now()
		p.label(mover, "edge")
		<-updates
		for quiet := false; !quiet; {
			select {
			case <-updates:
				r.moveSeen = time.Since(begin)
			case <-time.After(300 * time.Millisecond):
				quiet = true
			}
		}
		r.move = time.Duration((p.sum("fairlead_edgecache_refilter_duration_seconds_sum", "") - before) * float64(time.Second))
		r.moved = int(p.sum("fairlead_edgecache_refiltered_objects_total", "") - affected)
		p.label(mover, "cloud")
		time.Sleep(500 * time.Millisecond)
	}
}

// listed waits until the cache answers a list.
func (p *measured) listed(limit time.Duration) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		client, err := rest.HTTPClientFor(p.rest())
		if err != nil {
			return false
		}
		defer client.CloseIdleConnections()
		request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.rest().Host+slicesPath+"?resourceVersion=0", nil)
		require.NoError(p.t, err)
		request.Header.Set("Accept", "application/vnd.kubernetes.protobuf")
		response, err := client.Do(request)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		return err == nil && response.StatusCode == http.StatusOK
	}, limit, tick)
}

// fetchList returns the shortest of three times of a list, and its size.
func fetchList(t *testing.T, c *rest.Config) (time.Duration, int) {
	t.Helper()
	c.DisableCompression = true
	client, err := rest.HTTPClientFor(c)
	require.NoError(t, err)
	best, size := time.Hour, 0
	for range 3 {
		begin := time.Now()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Host+slicesPath+"?resourceVersion=0", nil)
		require.NoError(t, err)
		request.Header.Set("Accept", "application/vnd.kubernetes.protobuf")
		response, err := client.Do(request)
		require.NoError(t, err)
		n, err := io.Copy(io.Discard, response.Body)
		response.Body.Close()
		require.NoError(t, err)
		best, size = min(best, time.Since(begin)), int(n)
	}
	return best, size
}

// TestLatencyOnEqualContent compares lists of a pool that has every node: the cache then serves what the API server serves.
func TestLatencyOnEqualContent(t *testing.T) {
	w := newWorld(t)
	n := size{slices: 300, endpoints: 100, nodes: 50, pool: 50}
	if os.Getenv("FAIRLEAD_BENCH") != "" {
		n.slices = 2000
	}
	w.fill(n)
	p := w.prepare("edge").measured(buildCache(t))
	p.listed(time.Minute)
	ours, oursBytes := fetchList(t, p.rest())
	theirs, theirsBytes := fetchList(t, w.cluster.RESTConfig())
	t.Logf("list of %d slices with all endpoints: edge-cache %s (%.1f MB), API server %s (%.1f MB)", n.slices,
		ours.Round(100*time.Microsecond), float64(oursBytes)/1e6, theirs.Round(100*time.Microsecond), float64(theirsBytes)/1e6)
	if os.Getenv("FAIRLEAD_BENCH") != "" {
		assert.LessOrEqual(t, ours, theirs)
	}
}
