package actor

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"github.com/oracle/oci-go-sdk/v65/common"
	"github.com/oracle/oci-go-sdk/v65/loadbalancer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
	"fairlead.dev/pkg/testlane"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

var rollOuts = flag.String("rollout", "", "roll-outs to measure and print: all, demo; empty: few, and print nothing")

// A roll-out as a Deployment makes it, with streams as a model server has them.
const (
	replicas      = 50
	surge         = 5 // 10 %
	startup       = 3 * time.Second
	arrivals      = 200 // requests a second; a quarter of them in tests
	streamLength  = 2 * time.Second
	streamPieces  = 4
	settle        = 5 * time.Second
	naiveInterval = 2 * time.Second // of polls of a work request
)

// A flow keeps a backend set equal to the endpoints of a Service.
type flow string

const (
	ours    flow = "ours"
	noDrain flow = "ours without drain"
	naive   flow = "naive"
)

// cell is one measurement.
type cell struct {
	flow              flow
	preStop           time.Duration
	work              time.Duration
	cuts, afterHealth bool
	replicas          int
	interval          time.Duration // of requests
}

// outcome is the result of a measurement.
type outcome struct {
	requests, failed, writes int
	propagation              time.Duration // 99th percentile of the time from an event to its effect; ours only
}

// pod is a model server.
type pod struct {
	address netip.AddrPort
	server  *ocilbtest.Server
	state   plan.State
}

// rollout is a Deployment whose pods are replaced.
type rollout struct {
	*rig

	cell cell
	mu   sync.Mutex
	pods []*pod
	next int
	sync func() // tells the flow that endpoints have changed

	wanting sync.Mutex // of want
}

// measure rolls all pods once under load.
func measure(t *testing.T, c cell) outcome {
	t.Helper()
	var o outcome
	ocilbtest.Key()
	synctest.Test(t, func(t *testing.T) {
		o = measureInBubble(t, c)
	})
	return o
}

func measureInBubble(t *testing.T, c cell) outcome {
	t.Helper()
	modes := ocilb.DefaultOptions().Modes
	modes.Latency, modes.LatencyTail = ocilb.Duration(c.work), ocilb.Duration(c.work)
	options := ocilbtest.Options()
	options.Modes = modes
	options.Plane.CutRemoved, options.Plane.AdmitUnchecked = c.cuts, !c.afterHealth
	r := newRig(t, options)
	d := &rollout{rig: r, cell: c}
	require.Nil(t, r.Edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
		lb.BackendSets["chat"].HealthChecker = ocilb.HealthChecker{
			Protocol: "HTTP", URLPath: "/health", ReturnCode: 200, Retries: 3, TimeoutInMillis: 1000, IntervalInMillis: 2000,
			ResponseBodyRegex: ".*",
		}
		return listen(lb)
	}))
	time.Sleep(time.Duration(modes.Stale)) // reads show it
	ctx, cancel := context.WithCancel(t.Context())
	var background sync.WaitGroup
	if c.flow == naive {
		events := make(chan struct{}, 1)
		d.sync = func() {
			select {
			case events <- struct{}{}:
			default:
			}
		}
		background.Go(func() { d.naive(ctx, events) })
	} else {
		r.drain = plan.Drain{Maximum: time.Hour}
		if c.flow == noDrain {
			r.drain.Maximum = 0
		}
		d.sync = d.want
	}
	for range c.replicas {
		d.create().state = plan.Ready
	}
	d.sync()
	for len(strings.Fields(r.has("chat"))) < c.replicas {
		time.Sleep(100 * time.Millisecond)
	}
	time.Sleep(2*c.work + settle)
	r.ForgetCalls()
	r.meter.mu.Lock()
	r.meter.written = nil
	r.meter.mu.Unlock()

	requests, stopLoad := d.load()
	d.roll()
	time.Sleep(c.preStop + 3*c.work + settle)
	failed := stopLoad()
	cancel()
	background.Wait()
	r.stop()
	for _, p := range d.pods {
		p.server.Kill()
	}
	return outcome{requests: int(requests.Load()), failed: failed, writes: r.accepted(), propagation: r.meter.percentile99()}
}

func (m *meter) percentile99() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.written) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(m.written))
	return sorted[(len(sorted)*99+99)/100-1]
}

// create starts a pod that is not ready.
func (d *rollout) create() *pod {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next++
	p := &pod{address: at(d.next)}
	p.server = d.network.Serve(d.t, p.address.String(), http.HandlerFunc(stream))
	d.pods = append(d.pods, p)
	return p
}

// stream answers a request as a model server does, and health checks.
func stream(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/health" {
		return
	}
	for range streamPieces {
		time.Sleep(streamLength / streamPieces)
		if _, err := io.WriteString(w, "token "); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
	}
}

// roll replaces all pods, a surge at a time: new pods become ready, then as many old ones terminate.
func (d *rollout) roll() {
	var ends sync.WaitGroup
	for range d.cell.replicas / surge {
		var fresh []*pod
		for range surge {
			fresh = append(fresh, d.create())
		}
		time.Sleep(startup)
		d.mu.Lock()
		old := slices.Clone(d.pods[:surge])
		for i, p := range fresh {
			p.state = plan.Ready
			old[i].state = plan.Finishing
		}
		d.pods = append(slices.Clone(d.pods[surge:]), old...) // the next old ones come first
		d.mu.Unlock()
		d.sync()
		for _, p := range old {
			ends.Go(func() { d.end(p) })
		}
	}
	ends.Wait()
}

// end is the end of a pod: its hook, then the server stops at once, with its streams, and the endpoint goes.
func (d *rollout) end(p *pod) {
	time.Sleep(d.cell.preStop)
	p.server.Kill()
	d.mu.Lock()
	d.pods = slices.DeleteFunc(d.pods, func(other *pod) bool { return other == p })
	d.mu.Unlock()
	d.sync()
}

// endpoints returns the endpoints of the Service.
func (d *rollout) endpoints() []plan.Endpoint {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []plan.Endpoint
	for _, p := range d.pods {
		all = append(all, plan.Endpoint{Address: p.address, State: p.state})
	}
	slices.SortFunc(all, func(a, b plan.Endpoint) int { return a.Address.Compare(b.Address) })
	return all
}

func (d *rollout) want() {
	d.wanting.Lock() // no older endpoints after newer ones
	defer d.wanting.Unlock()
	d.actors.WantSet(Key{id, "chat"}, &Wanted{Endpoints: d.endpoints(), Weight: 1, Drain: d.drain, Limits: d.limits, Since: time.Now()})
}

// naive is the flow of oke-gateway-api 0.8: one worker, which replaces the whole set by the ready endpoints and waits for the work
// request in line.
func (d *rollout) naive(ctx context.Context, events <-chan struct{}) {
	client := d.NewClient(d.t)
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
		}
		got, err := client.GetBackendSet(ctx,
			loadbalancer.GetBackendSetRequest{LoadBalancerId: common.String(id), BackendSetName: common.String("chat")})
		if err != nil {
			continue
		}
		h := got.HealthChecker
		details := loadbalancer.UpdateBackendSetDetails{
			Policy: got.Policy, Backends: []loadbalancer.BackendDetails{}, HealthChecker: &loadbalancer.HealthCheckerDetails{
				Protocol: h.Protocol, UrlPath: h.UrlPath, Port: h.Port, ReturnCode: h.ReturnCode, Retries: h.Retries,
				TimeoutInMillis: h.TimeoutInMillis, IntervalInMillis: h.IntervalInMillis, ResponseBodyRegex: h.ResponseBodyRegex,
			},
		}
		for _, e := range d.endpoints() {
			if e.State == plan.Ready {
				details.Backends = append(details.Backends,
					loadbalancer.BackendDetails{
						IpAddress: common.String(e.Address.Addr().String()), Port: common.Int(int(e.Address.Port())),
					})
			}
		}
		updated, err := client.UpdateBackendSet(ctx, loadbalancer.UpdateBackendSetRequest{
			LoadBalancerId: common.String(id), BackendSetName: common.String("chat"), UpdateBackendSetDetails: details,
		})
		for err == nil && ctx.Err() == nil {
			time.Sleep(naiveInterval)
			var work loadbalancer.GetWorkRequestResponse
			work, err = client.GetWorkRequest(ctx, loadbalancer.GetWorkRequestRequest{WorkRequestId: updated.OpcWorkRequestId})
			if work.TimeFinished != nil {
				break
			}
		}
	}
}

// load sends requests at a constant rate until stop is called, which returns how many failed.
func (d *rollout) load() (requests *atomic.Int64, stop func() (failed int)) {
	requests = &atomic.Int64{}
	var failures atomic.Int64
	client := d.network.Client(d.t)
	done := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		ticker := time.NewTicker(d.cell.interval)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			requests.Add(1)
			all.Go(func() {
				if !d.request(client) {
					failures.Add(1)
				}
			})
		}
	})
	return requests, func() int {
		close(done)
		all.Wait()
		return int(failures.Load())
	}
}

// request reports whether a stream arrives whole.
func (d *rollout) request(client *http.Client) bool {
	response, err := client.Get("http://" + ocilbtest.Address + ":80/v1/chat/completions")
	if err != nil {
		return false
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return err == nil && response.StatusCode == http.StatusOK && len(body) == streamPieces*len("token ")
}

// TestRollOut measures roll-outs, and checks what the documentation promises. make bench-rollout prints all cells, make demo-oci a few.
func TestRollOut(t *testing.T) {
	t.Parallel()
	out := io.Discard
	if *rollOuts != "" {
		out = os.Stdout
	}
	cells := cellsOf(*rollOuts)
	outcomes := make([]outcome, len(cells))
	var all sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, c := range cells {
		free <- struct{}{}
		all.Go(func() {
			outcomes[i] = measure(t, c)
			<-free
		})
	}
	all.Wait()
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "preStop\twork request\tremoval\tnew backend\tflow\trequests\tfailed\twrites\tp99 propagation\t")
	for i, c := range cells {
		o := outcomes[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t\n", c.preStop, c.work, choose(c.cuts, "cuts", "spares"),
			choose(c.afterHealth, "after health", "at once"), c.flow, o.requests, o.failed, o.writes,
			o.propagation.Round(100*time.Millisecond))
		assert.Greater(t, o.requests, 200)
		switch {
		case c.flow == ours && c.preStop > o.propagation+streamLength:
			assert.Zero(t, o.failed, "%+v: %+v", c, o)
		case c.flow == noDrain && c.cuts && c.preStop > c.work:
			assert.NotZero(t, o.failed, "without a drain, removal cuts streams: %+v: %+v", c, o)
		}
	}
	require.NoError(t, table.Flush())
}

func choose(condition bool, yes, no string) string {
	if condition {
		return yes
	}
	return no
}

// cellsOf returns the cells of a value of the flag. Those of the test are small in the first lane.
func cellsOf(selection string) []cell {
	var all []cell
	switch selection {
	case "all":
		all = everyCell()
	case "demo":
		for _, f := range []flow{naive, noDrain, ours} {
			all = append(all, cell{flow: f, preStop: 15 * time.Second, work: 3 * time.Second, cuts: true})
		}
	default:
		for _, f := range []flow{noDrain, ours} {
			all = append(all, cell{flow: f, preStop: 15 * time.Second, work: 3 * time.Second, cuts: true})
		}
	}
	for i := range all {
		all[i].replicas, all[i].interval = replicas, time.Second/arrivals
		if selection == "" {
			all[i].replicas, all[i].interval = testlane.Repetitions(2*surge, replicas),
				time.Duration(testlane.Repetitions(20, 4))*time.Second/arrivals
		}
	}
	return all
}

func everyCell() []cell {
	var all []cell
	for _, preStop := range []time.Duration{0, 5 * time.Second, 15 * time.Second, 30 * time.Second} {
		for _, work := range []time.Duration{time.Second, 3 * time.Second, 17 * time.Second} {
			for _, cuts := range []bool{true, false} {
				for _, afterHealth := range []bool{false, true} {
					for _, f := range []flow{naive, noDrain, ours} {
						all = append(all, cell{flow: f, preStop: preStop, work: work, cuts: cuts, afterHealth: afterHealth})
					}
				}
			}
		}
	}
	return all
}
