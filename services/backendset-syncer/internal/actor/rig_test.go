package actor

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
	"fairlead.dev/pkg/testlane"
	"fairlead.dev/services/backendset-syncer/internal/ociapi"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	id     = "ocid1.loadbalancer.oc1.iad.a"
	verify = 5 * time.Minute
	// client of the API: shorter than the SDK's, as the program has it.
	timeout = 20 * time.Second
)

// rig is an emulator of load balancers with actors, on fake time.
type rig struct {
	*ocilbtest.Service

	t       *testing.T
	network *ocilbtest.Network
	actors  *Actors
	stop    func()
	meter   *meter
	fence   atomic.Pointer[error] // of writes
	others  sync.Map              // occupants by their addresses
	limits  plan.Limits
	drain   plan.Drain
}

// meter counts what actors observe.
type meter struct {
	mu        sync.Mutex
	written   []time.Duration
	inService []time.Duration
	works     map[string]int
	conflicts map[string]int
	rate      float64
}

func (m *meter) ObserveWorkRequest(_, result string, _ time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.works[result]++
}

func (m *meter) ObserveWrite(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.written = append(m.written, d)
}

func (m *meter) ObserveInService(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inService = append(m.inService, d)
}

func (m *meter) CountConflict(code string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conflicts[code]++
}

func (m *meter) SetRateLimit(r float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rate = r
}

func (m *meter) ObserveReport(Key, *Report)                   {}
func (m *meter) ObserveRequest(string, string, time.Duration) {}

// inBubble runs a test on fake time with an emulator whose load balancer has the backend sets "chat" and "embed".
func inBubble(t *testing.T, modes *ocilb.Modes, test func(r *rig)) {
	t.Helper()
	ocilbtest.Key()
	synctest.Test(t, func(t *testing.T) {
		o := ocilbtest.Options()
		if modes != nil {
			o.Modes = *modes
		}
		r := newRig(t, o)
		test(r)
		r.stop()
	})
}

// newRig returns a rig in the current bubble, with a leader that has no sets.
func newRig(t *testing.T, o ocilb.Options) *rig {
	t.Helper()
	r := &rig{
		t: t, network: ocilbtest.NewNetwork(), meter: &meter{works: map[string]int{}, conflicts: map[string]int{}},
		limits: plan.Limits{PerSet: 512, Total: 512, Reserved: 16}, drain: plan.Drain{Maximum: time.Minute},
	}
	o.Plane.Dial, o.Plane.Listen = r.network.Dial, r.network.Listen
	r.Service = ocilbtest.Start(t, o)
	r.Create(id, ocilbtest.Compartment, "models")
	require.Nil(t, r.Edit(id, furnish))
	time.Sleep(time.Duration(o.Modes.Stale)) // reads show it
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

// furnish makes the load balancer as Terraform leaves it: two sets with fields that nobody may lose.
func furnish(lb *ocilb.LoadBalancer) *ocilb.Error {
	limit := 1000
	for _, name := range []string{"chat", "embed"} {
		lb.BackendSets[name] = &ocilb.BackendSet{
			Name: name, Policy: "LEAST_CONNECTIONS", Backends: []ocilb.Backend{}, BackendMaxConnections: &limit,
			HealthChecker: ocilb.HealthChecker{
				Protocol: "HTTP", URLPath: "/health", ReturnCode: 204, Retries: 2, TimeoutInMillis: 1500, IntervalInMillis: 2000,
				ResponseBodyRegex: "^ok",
			},
		}
	}
	return nil
}

// listen adds a listener for set chat. Without one, the load balancer checks no backend.
func listen(lb *ocilb.LoadBalancer) *ocilb.Error {
	lb.Listeners["http"] = &ocilb.Listener{
		Name: "http", Protocol: "HTTP", Port: 80, DefaultBackendSetName: "chat",
		ConnectionConfiguration: &ocilb.ConnectionConfiguration{IdleTimeout: 3600},
	}
	return nil
}

// client returns a client of its own.
func (r *rig) client() *ociapi.Client {
	transport := &http.Transport{DialContext: r.Service.Network.Dial}
	r.t.Cleanup(transport.CloseIdleConnections)
	return ociapi.New(ociapi.Params{
		Options: ociapi.Options{Rate: 100, Endpoint: "http://oci.test"}, Observer: r.meter, Clock: clock.RealClock{},
		Credentials: ocilbtest.Provider(), HTTP: &http.Client{Transport: transport, Timeout: timeout},
	})
}

// start starts a leader.
func (r *rig) start() {
	r.actors = New(Params{
		Client: r.client(), Observer: r.meter, Clock: clock.RealClock{}, Log: zap.NewNop(), Verify: verify, Changed: func(Key) {},
		Jitter: func() float64 { return 0.5 },
		Occupants: func(backend netip.AddrPort, own []string) []plan.Occupant {
			other, found := r.others.Load(backend.Addr())
			if !found || slices.Contains(own, other.(plan.Occupant).Service) {
				return nil
			}
			return []plan.Occupant{other.(plan.Occupant)}
		},
		MayWrite: func() error {
			if err := r.fence.Load(); err != nil {
				return *err
			}
			return nil
		},
	})
	lease, kill := context.WithCancel(context.Background())
	ctx, cancel := context.WithCancel(lease)
	wait := r.actors.StartTerm(ctx, lease)
	r.stop = sync.OnceFunc(func() {
		cancel()
		kill() // as a process that is killed: requests end
		wait()
	})
}

// restart replaces the leader.
func (r *rig) restart() {
	r.stop()
	r.start()
}

// at returns the address of a pod.
func at(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 8000)
}

// want lets a set have endpoints: "1 2:finishing 3:terminating 4:notready".
func (r *rig) want(set, endpoints string, changes ...func(w *Wanted)) {
	r.actors.WantSet(Key{id, set}, r.wanted(endpoints, changes...))
}

func (r *rig) wanted(endpoints string, changes ...func(w *Wanted)) *Wanted {
	states := map[string]plan.State{"": plan.Ready, "finishing": plan.Finishing, "terminating": plan.Terminating, "notready": plan.NotReady}
	w := &Wanted{Weight: 1, Services: []string{"models/own"}, Drain: r.drain, Limits: r.limits, Since: time.Now()}
	for _, f := range strings.Fields(endpoints) {
		name, state, _ := strings.Cut(f, ":")
		n, err := strconv.Atoi(name)
		require.NoError(r.t, err)
		w.Endpoints = append(w.Endpoints, plan.Endpoint{Address: at(n), State: states[state]})
	}
	for _, change := range changes {
		change(w)
	}
	return w
}

// has returns the backends of a set that are in effect: "1 2:drain", sorted.
func (r *rig) has(set string) string {
	backends := slices.Clone(r.Current(id).BackendSets[set].Backends)
	number := func(b ocilb.Backend) int {
		a := netip.MustParseAddr(b.IPAddress).As4()
		return int(a[2])<<8 | int(a[3])
	}
	slices.SortFunc(backends, func(a, b ocilb.Backend) int { return number(a) - number(b) })
	var all []string
	for _, b := range backends {
		text := strconv.Itoa(number(b))
		if b.Drain {
			text += ":drain"
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

// eventually waits until a set has backends and its report is synced, and returns the time that took.
func (r *rig) eventually(set, backends string, within time.Duration) time.Duration {
	r.t.Helper()
	begun := time.Now()
	for {
		report := r.actors.BackendSetReport(Key{id, set})
		if r.has(set) == backends && report != nil && report.Synced {
			return time.Since(begun)
		}
		if time.Since(begun) > within {
			require.Fail(r.t, "set does not converge", "after %s set %s has %q, and not %q; report %+v; calls %s", within, set, r.has(set),
				backends, report, r.lastCalls())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (r *rig) lastCalls() string {
	var lines []string
	calls := r.Calls()
	for _, c := range calls[max(len(calls)-40, 0):] {
		lines = append(lines,
			fmt.Sprintf("\n%s %s %d %s %s %s", c.At.Format("05.000"), c.Operation, c.Status, c.Code, c.Fault, c.WorkRequest))
	}
	return strings.Join(lines, "")
}

// report waits for a report that satisfies a condition.
func (r *rig) report(set string, within time.Duration, satisfies func(*Report) bool) *Report {
	r.t.Helper()
	begun := time.Now()
	for {
		report := r.actors.BackendSetReport(Key{id, set})
		if report != nil && satisfies(report) {
			return report
		}
		if time.Since(begun) > within {
			require.Fail(r.t, "no such report", "after %s: %+v; calls %s", within, report, r.lastCalls())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// reason waits for a report with a reason.
func (r *rig) reason(set, reason string, within time.Duration) *Report {
	r.t.Helper()
	return r.report(set, within, func(report *Report) bool { return report.Reason == reason })
}

// accepted returns the number of work requests of a kind, or of all.
func (r *rig) accepted(operations ...string) int {
	seen := map[string]bool{}
	for _, c := range r.Calls(operations...) {
		if c.Write() && c.WorkRequest != "" {
			seen[c.WorkRequest] = true
		}
	}
	return len(seen)
}

// firstModes are the modes of the first lane: each concurrency mode, with different times at which the ETag changes.
var firstModes = []string{
	"busy, etag at acceptance", "conflict, etag at acceptance, lenient", "queue, etag at both", "parallel, etag at completion, lenient",
}

// modes returns the first modes of the emulator. In the long lane, it returns all combinations of what documents leave open.
func modes(first int) map[string]*ocilb.Modes {
	all := ocilbtest.AllModes()
	if !testlane.Long {
		maps.DeleteFunc(all, func(name string, _ *ocilb.Modes) bool { return !slices.Contains(firstModes[:first], name) })
	}
	return all
}

// inModes runs a test in the first modes of the emulator. In the long lane, it runs the test in all modes.
func inModes(t *testing.T, first int, test func(r *rig)) {
	t.Helper()
	modes := modes(first)
	for _, name := range slices.Sorted(maps.Keys(modes)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, modes[name], test)
		})
	}
}
