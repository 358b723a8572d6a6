package edge_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"fairlead.dev/pkg/kubetest"
)

// entrance is the Traefik of a pool, as clients in its pod reach it: no packet leaves the node.
type entrance struct {
	pool   string
	client *http.Client

	mu      sync.Mutex
	network *os.File // the network namespace of the pod, which outlives its containers
}

// answer is what a client got.
type answer struct {
	status int
	from   string // name of the echo server
}

func (s *system) entrance(pool string) *entrance {
	s.t.Helper()
	e := &entrance{pool: pool}
	e.client = e.newClient()
	e.enter(s.t)
	s.t.Cleanup(func() { e.network.Close() })
	return e
}

// newClient returns a client of Traefik's port.
func (e *entrance) newClient() *http.Client {
	return &http.Client{Timeout: kubetest.Patience, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return e.dial(ctx, "127.0.0.1:8000") }}}
}

// enter makes the pod that runs now the entrance.
func (e *entrance) enter(t *testing.T) {
	t.Helper()
	network, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", e.processes(t, 2)[0]))
	require.NoError(t, err)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.network != nil {
		e.network.Close()
	}
	e.network = network
}

// dial connects from the network namespace of the pod.
func (e *entrance) dial(ctx context.Context, address string) (conn net.Conn, err error) {
	e.mu.Lock()
	network, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", e.network.Fd()))
	e.mu.Unlock()
	if err != nil {
		return nil, err
	}
	defer network.Close()
	inside(network, func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", address)
		return err
	}, &err)
	return conn, err
}

// inside runs f on a thread in a network namespace. A socket stays in the namespace in which it was made, so only this thread enters it; it ends with
// the goroutine.
func inside(network *os.File, f func() error, err *error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if *err = unix.Setns(int(network.Fd()), unix.CLONE_NEWNET); *err != nil {
			*err = fmt.Errorf("enter the network of the pod: %w", *err)
			return
		}
		*err = f()
	}()
	<-done
}

// ask sends a request for a host.
func (e *entrance) ask(ctx context.Context, host string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/", nil)
	if err != nil {
		return answer{}, err
	}
	response, err := e.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return answer{status: response.StatusCode, from: response.Header.Get("X-Served-By")}, err
}

// attempt limits a request that is repeated until it is answered.
const attempt = 5 * time.Second

// answers returns an error unless the pool answers from its own pod now.
func (e *entrance) answers(ctx context.Context, host string) error {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	got, err := e.ask(ctx, host)
	if want := (answer{status: http.StatusOK, from: nodeOf(e.pool)}); err == nil && got != want {
		err = fmt.Errorf("the answer is %v, want %v", got, want)
	}
	return err
}

// arguments tell the processes of the cache and of Traefik from others.
func (e *entrance) arguments() []string {
	return []string{"--pool=" + e.pool, "--providers.kubernetesingress.ingressclass=" + e.pool}
}

// processes returns the ids of the cache and of Traefik.
func (e *entrance) processes(t *testing.T, want int) []int {
	t.Helper()
	var ids []int
	for _, argument := range e.arguments() {
		ids = append(ids, find(t, argument)...)
	}
	require.Len(t, ids, want, "the cache and Traefik of %s", e.pool)
	return ids
}

// kill kills processes, which have these arguments, and waits until the kubelet has started others in their place.
func kill(t *testing.T, arguments ...string) {
	t.Helper()
	var before []int
	for _, argument := range arguments {
		ids := find(t, argument)
		require.Len(t, ids, 1, argument)
		require.NoError(t, syscall.Kill(ids[0], syscall.SIGKILL))
		before = append(before, ids...)
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		for _, argument := range arguments {
			ids := find(c, argument)
			require.Len(c, ids, 1, argument)
			require.NotContains(c, before, ids[0], argument)
		}
	}, kubetest.Patience, tick)
}

// find returns the ids of the processes with an argument. It finds those of all clusters, so the tests of this package are not parallel.
func find(t require.TestingT, argument string) []int {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	var ids []int
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil || bytes.HasPrefix(line, []byte("/proc/self/exe")) {
			continue // it has ended, or starts a container
		}
		if slices.ContainsFunc(bytes.Split(line, []byte{0}), func(f []byte) bool { return string(f) == argument }) {
			id, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			require.NoError(t, err)
			ids = append(ids, id)
		}
	}
	return ids
}

// interval gives 20 requests a second. With half of them, a gap of the length of a restart may fall between two requests.
const interval = 50 * time.Millisecond

// count is what became of requests.
type count struct {
	sent, failed int
	errors       []string // the first few
}

// second is a row of the timeline.
type second struct {
	at     time.Duration
	phase  string
	counts map[string]*count
}

// timeline sends requests to all pools, and counts them by second and phase.
type timeline struct {
	entrances map[string]*entrance
	begun     time.Time
	cancel    context.CancelFunc
	running   sync.WaitGroup

	mu      sync.Mutex
	current string
	rows    []*second
	phases  map[string]map[string]*count // by pool and phase
}

func newTimeline(entrances map[string]*entrance) *timeline {
	l := &timeline{entrances: entrances, phases: map[string]map[string]*count{}, cancel: func() {}}
	for pool := range entrances {
		l.phases[pool] = map[string]*count{}
	}
	return l
}

func (l *timeline) start(ctx context.Context, phase string) {
	ctx, l.cancel = context.WithCancel(ctx)
	l.begun, l.current = time.Now(), phase
	for _, e := range l.entrances {
		l.running.Go(func() {
			ticker := time.NewTicker(interval)
			defer ticker.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
					l.running.Go(func() { l.send(context.WithoutCancel(ctx), e) })
				}
			}
		})
	}
}

func (l *timeline) stop() {
	l.cancel()
	l.running.Wait()
}

func (l *timeline) phase(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = name
}

func (l *timeline) send(ctx context.Context, e *entrance) {
	at := time.Since(l.begun)
	l.mu.Lock()
	phase := l.current
	l.mu.Unlock()
	got, err := e.ask(ctx, host)
	failed := err != nil || got != answer{status: http.StatusOK, from: nodeOf(e.pool)}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range []*count{l.phaseCount(e.pool, phase), l.row(at, phase).count(e.pool)} {
		c.sent++
		if failed {
			c.failed++
			if len(c.errors) < 3 {
				c.errors = append(c.errors, fmt.Sprintf("%s: %v %v", at.Round(time.Millisecond), got, err))
			}
		}
	}
}

func (l *timeline) phaseCount(pool, phase string) *count {
	if l.phases[pool][phase] == nil {
		l.phases[pool][phase] = &count{}
	}
	return l.phases[pool][phase]
}

func (l *timeline) row(at time.Duration, phase string) *second {
	at = at.Truncate(time.Second)
	for _, r := range slices.Backward(l.rows) {
		if r.at == at {
			r.phase = phase // the later one counts
			return r
		}
	}
	r := &second{at: at, phase: phase, counts: map[string]*count{}}
	l.rows = append(l.rows, r)
	return r
}

func (r *second) count(pool string) *count {
	if r.counts[pool] == nil {
		r.counts[pool] = &count{}
	}
	return r.counts[pool]
}

// counts returns what became of the requests to a pool, by phase.
func (l *timeline) counts(pool string) map[string]*count {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.phases[pool])
}

// String returns the timeline as a table: requests and failures per second.
func (l *timeline) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%8s  %-10s", "second", "phase")
	for _, pool := range pools {
		fmt.Fprintf(&b, "  %18s", pool+" req/failed")
	}
	slices.SortFunc(l.rows, func(x, y *second) int { return int(x.at - y.at) })
	for _, r := range l.rows {
		fmt.Fprintf(&b, "\n%8.0f  %-10s", r.at.Seconds(), r.phase)
		for _, pool := range pools {
			c := r.count(pool)
			fmt.Fprintf(&b, "  %12d %5d", c.sent, c.failed)
		}
	}
	return b.String()
}
