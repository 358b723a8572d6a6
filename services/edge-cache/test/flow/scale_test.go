//go:build long

package flow

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// TestScale measures a cache of a large cluster, in a process of its own, beside the API server. With FAIRLEAD_BENCH=1 the cluster has
// 10 000 slices of 100 endpoints, and the goals are checked.
func TestScale(t *testing.T) {
	n := size{slices: 300, endpoints: 100, nodes: 500, pool: 50}
	full := os.Getenv("FAIRLEAD_BENCH") != ""
	if full {
		n = size{slices: 10_000, endpoints: 100, nodes: 5000, pool: 50, slow: 5}
		if text := os.Getenv("FAIRLEAD_BENCH_SLICES"); text != "" {
			n.slices, _ = strconv.Atoi(text)
		}
	}
	w := newOwnWorld(t)
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
	assert.Equal(t, n.slow, report.slowEnded, "watches that read a byte per second are cut off")
	assert.Less(t, report.behind, 10*time.Second, "another watch")
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
	behind                                           time.Duration
	slowEnded                                        int
	cacheList, serverList                            time.Duration
	cacheBytes, serverBytes                          int
	newest                                           time.Duration
	newestBytes                                      float64
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
the same of the newest state, and what it costs   %12s  %7.2f MB from the API server
cold offline start to first list                  %12s
roll-out of all pods beside %d slow watches        %d of them cut off, another client up to date %s after the last change`,
		r.size.slices, r.size.endpoints, r.size.pool, r.size.nodes, r.sync.Round(time.Millisecond), r.wire/1e6, r.decoded/1e6,
		r.afterSync, r.afterMoves, r.afterRollOut, r.afterRelist, r.afterStart, r.files, r.syncPeak, r.peak,
		r.move.Round(10*time.Microsecond), r.moveSeen.Round(time.Millisecond), r.moved,
		r.cacheList.Round(time.Millisecond), r.serverList.Round(time.Millisecond), float64(r.cacheBytes)/1e6, float64(r.serverBytes)/1e6,
		r.newest.Round(time.Millisecond), r.newestBytes/1e6,
		r.offlineStart.Round(time.Millisecond), r.size.slow, r.slowEnded, r.behind.Round(time.Millisecond))
}

// settle is the time after which memory counts as steady.
const settle = 3 * time.Second

func (p *measured) measure(n size, backup string) scaleReport {
	p.t.Helper()
	r := scaleReport{size: n}
	begin := time.Now()
	p.listed()
	r.sync = time.Since(begin)
	time.Sleep(settle)
	r.afterSync, r.syncPeak, r.files = p.memory("VmRSS"), p.memory("VmHWM"), p.memory("RssFile")
	r.wire = p.sum("fairlead_edgecache_upstream_received_bytes_total", `kind="wire"`)
	r.decoded = p.sum("fairlead_edgecache_upstream_received_bytes_total", `kind="decoded"`)
	p.logMemory("sync")

	r.cacheList, r.cacheBytes = fetchList(p.t, p.rest())
	r.serverList, r.serverBytes = fetchList(p.t, p.cluster.RESTConfig())
	p.measureNewest(n, &r)
	client := p.measureMoves(n, &r)
	r.afterMoves = p.memory("VmRSS")

	p.measureRollOut(n, client, &r)
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
	p.listed()
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
		mb("fairlead_edgecache_store_bytes"), mb("go_memstats_heap_alloc_bytes"), mb("go_memstats_heap_inuse_bytes"),
		mb("go_memstats_heap_sys_bytes"), mb("go_memstats_heap_released_bytes"))
}

// measureNewest lists the newest state after a change of another kind: the versions of the API server are ahead, and the slices are the
// same.
func (p *measured) measureNewest(n size, r *scaleReport) {
	p.t.Helper()
	received := func() float64 {
		return p.sum("fairlead_edgecache_upstream_received_bytes_total", `kind="wire",source="discovery.k8s.io/v1/endpointslices"`)
	}
	var times []time.Duration
	before := received()
	for i := range runs {
		p.label(nodeName(n.nodes-1), fmt.Sprint("cloud-", i))
		begin := time.Now()
		ask(p.t, p.rest(), slicesPath, values(), "application/vnd.kubernetes.protobuf")
		times = append(times, time.Since(begin))
	}
	r.newest, r.newestBytes = median(times), (received()-before)/runs
	require.Equal(p.t, -1.0, p.metric("fairlead_edgecache_unconfirmed_reads_total"))
}

// runs is the number of measurements of a time, of which the median counts.
const runs = 5

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

// measureMoves moves a node into the pool and out again, and waits until an informer has seen each of its slices. It returns the informer.
func (p *measured) measureMoves(n size, r *scaleReport) cache.SharedIndexInformer {
	p.t.Helper()
	mover := nodeName(n.pool + 1)
	updates := make(chan struct{}, 100_000)
	i := p.informer(clientKinds()[0], clientKinds()[0].make(p.t, p.rest()))
	handler, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(any, any) { updates <- struct{}{} }})
	require.NoError(p.t, err)
	require.Eventually(p.t, i.HasSynced, time.Minute, tick)
	var moves, seen []time.Duration
	for range runs {
		for _, pool := range []string{"edge", "cloud"} {
			took := p.sum("fairlead_edgecache_refilter_duration_seconds_sum", "")
			affected := p.sum("fairlead_edgecache_refiltered_objects_total", "")
			begin, last := time.Now(), time.Duration(0)
			p.label(mover, pool)
			<-updates
			for quiet := false; !quiet; {
				last = time.Since(begin)
				select {
				case <-updates:
				case <-time.After(500 * time.Millisecond):
					quiet = true
				}
			}
			moves = append(moves, time.Duration((p.sum("fairlead_edgecache_refilter_duration_seconds_sum", "")-took)*float64(time.Second)))
			seen = append(seen, last)
			r.moved = int(p.sum("fairlead_edgecache_refiltered_objects_total", "") - affected)
		}
	}
	r.move, r.moveSeen = median(moves), median(seen)
	require.NoError(p.t, i.RemoveEventHandler(handler))
	return i
}

// measureRollOut replaces all pods while some clients read a byte per second, and waits until those are cut off.
func (p *measured) measureRollOut(n size, client cache.SharedIndexInformer, r *scaleReport) {
	p.t.Helper()
	stops := make([]func(), n.slow)
	for i := range stops {
		stops[i] = p.readSlowly(p.t)
	}
	defer func() {
		for _, stop := range stops {
			stop()
		}
	}()
	p.rollOut(n)
	begin := time.Now()
	newest := uint64(0)
	for _, item := range ask(p.t, p.rest(), slicesPath, values(), "").Items {
		newest = max(newest, version(p.t, item.Metadata.ResourceVersion))
	}
	require.Eventually(p.t, func() bool { return version(p.t, client.LastSyncResourceVersion()) >= newest }, time.Minute, tick,
		"a client that reads its watch stays behind")
	r.behind = time.Since(begin)
	for range 90 {
		r.slowEnded = int(p.metric(`fairlead_edgecache_watches_ended_total{reason="slow"}`))
		if r.slowEnded >= n.slow {
			return
		}
		time.Sleep(time.Second)
	}
}

// fetchList returns the time of a list, and its size.
func fetchList(t *testing.T, c *rest.Config) (time.Duration, int) {
	t.Helper()
	c.DisableCompression = true
	client, err := rest.HTTPClientFor(c)
	require.NoError(t, err)
	var times []time.Duration
	size := 0
	for range runs {
		begin := time.Now()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Host+slicesPath+"?resourceVersion=0", nil)
		require.NoError(t, err)
		request.Header.Set("Accept", "application/vnd.kubernetes.protobuf")
		response, err := client.Do(request)
		require.NoError(t, err)
		n, err := io.Copy(io.Discard, response.Body)
		response.Body.Close()
		require.NoError(t, err)
		times, size = append(times, time.Since(begin)), int(n)
	}
	return median(times), size
}

// TestLatencyOnEqualContent compares lists of a pool that has every node: the cache then serves what the API server serves.
func TestLatencyOnEqualContent(t *testing.T) {
	w := newOwnWorld(t)
	n := size{slices: 300, endpoints: 100, nodes: 50, pool: 50}
	if os.Getenv("FAIRLEAD_BENCH") != "" {
		n.slices = 2000
	}
	w.fill(n)
	p := w.prepare("edge").measured(buildCache(t))
	p.listed()
	ours, oursBytes := fetchList(t, p.rest())
	theirs, theirsBytes := fetchList(t, w.cluster.RESTConfig())
	t.Logf("list of %d slices with all endpoints: edge-cache %s (%.1f MB), API server %s (%.1f MB)", n.slices,
		ours.Round(100*time.Microsecond), float64(oursBytes)/1e6, theirs.Round(100*time.Microsecond), float64(theirsBytes)/1e6)
	if os.Getenv("FAIRLEAD_BENCH") != "" {
		assert.LessOrEqual(t, ours, theirs)
	}
}
